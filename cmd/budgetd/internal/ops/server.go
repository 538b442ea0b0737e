package ops

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"
)

// Bounds on what a connection may cost before a handler sees it.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second // of a whole request
	writeTimeout      = time.Minute      // from the request's header to the answer's end
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	maxStreams        = 1000 // calls under way on one HTTP/2 connection
)

// NewServer returns a server of HTTP/1.1 and HTTP/2, the latter also without
// TLS (h2c), with every timeout set. tlsConfig may be nil. A server that serves
// profiles, which take as long as asked, has no bound on writing.
func NewServer(handler http.Handler, tlsConfig *tls.Config, profiles bool, log *slog.Logger) *http.Server {
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		Protocols:         &http.Protocols{},
		// What net/http logs is about single connections: handshakes that fail,
		// peers that misbehave. Anybody who connects can cause it.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	if profiles {
		server.WriteTimeout = 0
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(tlsConfig != nil)
	server.Protocols.SetUnencryptedHTTP2(tlsConfig == nil)
	return server
}
