package ops

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Probes share one round of checks, learn of a change soon, and stop at once
// when the broker drains.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		var fault error
		r := NewReadiness(
			Check{Name: "engine", Do: func(context.Context) error { rounds++; return fault }},
			Check{Name: "ledger", Do: func(context.Context) error { return nil }},
		)
		ctx := context.Background()
		for range 100 {
			if err := r.Ready(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if rounds != 1 {
			t.Errorf("100 probes at once made %d rounds of checks", rounds)
		}
		fault = errors.New("away")
		time.Sleep(checkEvery)
		if err := r.Ready(ctx); err == nil || err.Error() != "engine: away" {
			t.Errorf("%v", err)
		}
		fault = nil
		time.Sleep(checkEvery)
		if err := r.Ready(ctx); err != nil {
			t.Errorf("after it came back: %v", err)
		}
		r.Drain()
		if err := r.Ready(ctx); err == nil || !strings.Contains(err.Error(), "draining") {
			t.Errorf("while draining: %v", err)
		}
	})
}

// A check that hangs is cut off, and a prober that hangs up is no outage.
func TestReadinessBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		r := NewReadiness(Check{Name: "engine", Do: func(ctx context.Context) error {
			if hangs {
				<-ctx.Done()
			}
			return ctx.Err()
		}})
		start := time.Now()
		if err := r.Ready(context.Background()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != checkTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		hangs = false
		time.Sleep(checkEvery)
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		if err := r.Ready(gone); err != nil {
			t.Errorf("a prober that hung up: %v", err)
		}
	})
}

func writePair(t *testing.T, certFile, keyFile string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		// Files written within one tick of the file system's clock differ too.
		at := time.Unix(1_700_000_000+serial, 0)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A renewed certificate is used without a restart; a broken one is not.
func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1_700_000_000, 0)
	var logged strings.Builder
	r := &reloader{
		certFile: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem"),
		log: slog.New(slog.NewTextHandler(&logged, nil)), now: func() time.Time { return now },
	}
	serial := func() int64 {
		t.Helper()
		pair, err := r.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.Int64()
	}
	writePair(t, r.certFile, r.keyFile, 1)
	if err := r.load(); err != nil {
		t.Fatal(err)
	}
	writePair(t, r.certFile, r.keyFile, 2)
	if got := serial(); got != 1 {
		t.Errorf("looked again at once: certificate %d", got)
	}
	now = now.Add(reloadEvery)
	if got := serial(); got != 2 {
		t.Errorf("certificate %d after the renewal", got)
	}
	if err := os.WriteFile(r.certFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(reloadEvery)
	if got := serial(); got != 2 {
		t.Errorf("certificate %d after a broken one", got)
	}
	if !strings.Contains(logged.String(), "the old one stays") {
		t.Errorf("the log does not say so: %s", logged.String())
	}
	writePair(t, r.certFile, r.keyFile, 3)
	now = now.Add(reloadEvery)
	if got := serial(); got != 3 {
		t.Errorf("certificate %d after it was mended", got)
	}
	if _, err := TLSConfig(filepath.Join(dir, "none.pem"), r.keyFile, r.log); err == nil || !strings.Contains(err.Error(), "none.pem") {
		t.Errorf("a missing file: %v", err)
	}
}
