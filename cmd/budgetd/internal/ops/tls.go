package ops

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// reloadEvery is how often a handshake may look whether the files changed.
const reloadEvery = 10 * time.Second

// TLSConfig returns a configuration of TLS 1.2 and later with the certificate
// of two PEM files. When they change, the new pair is used from a few seconds
// later on; a pair that can't be read is logged, and the old one stays.
func TLSConfig(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	r := &reloader{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	if err := r.load(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: r.get}, nil
}

type reloader struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	version [2]stamp
	looked  time.Time
}

// stamp tells one content of a file from the next.
type stamp struct {
	modified time.Time
	bytes    int64
}

func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

func (r *reloader) load() error {
	r.looked = r.now()
	r.version = [2]stamp{stampOf(r.certFile), stampOf(r.keyFile)}
	pair, err := tls.LoadX509KeyPair(r.certFile, r.keyFile)
	if err != nil {
		return fmt.Errorf("read the certificate %s and its key %s: %w", r.certFile, r.keyFile, err)
	}
	r.current = &pair
	return nil
}

func (r *reloader) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); now.Sub(r.looked) >= reloadEvery {
		r.looked = now
		if r.version != [2]stamp{stampOf(r.certFile), stampOf(r.keyFile)} {
			if err := r.load(); err != nil {
				r.log.Error("the new certificate can't be used; the old one stays", "error", err)
			} else {
				r.log.Info("a new certificate is used", "file", r.certFile)
			}
		}
	}
	return r.current, nil
}
