package app

import (
	"context"
	"net"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/certificate"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory/telemetry"
)

// openPair opens the certificate of the services, which those of one process share, if the configuration
// names one, and shows in the metrics of seen when it ends.
func (a *app) openPair(cfg config.Config, seen *telemetry.Service) error {
	if !cfg.TLS.On() {
		return nil
	}
	if a.pair == nil {
		pair, err := certificate.Open(cfg.TLS.Cert, cfg.TLS.Key, seen.Log)
		if err != nil {
			return err
		}
		a.pair, a.addrs.Certificate = pair, pair.Leaf()
		ctx, cancel := context.WithCancel(a.ctx)
		var watching sync.WaitGroup
		watching.Go(func() { pair.Watch(ctx) }) // ends with the stack
		a.push("certificate", func() error { cancel(); watching.Wait(); return nil })
	}
	pair := a.pair
	seen.Gauge("mneme_tls_certificate_expires_seconds", "When the certificate that is served ends, in seconds of Unix time.",
		func() float64 { return float64(pair.Leaf().NotAfter.Unix()) })
	return nil
}

// scheme is that of the URLs of what listens in this process.
func (a *app) scheme() string {
	if a.pair != nil {
		return "https"
	}
	return "http"
}

// dialTLS is how other services of ours are reached by https; nil for as any server.
func (a *app) dialTLS() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if a.pair == nil {
		return nil
	}
	return a.pair.Trust().Dial
}

// serverLog takes what http.Server has to say. Handshakes that fail are most often those of scanners and probes.
type serverLog struct{ log zerolog.Logger }

func (s serverLog) Write(text []byte) (int, error) {
	line := strings.TrimSpace(string(text))
	at := s.log.Error()
	if strings.HasPrefix(line, "http: TLS handshake error") {
		at = s.log.Debug()
	}
	at.Msg(line)
	return len(text), nil
}
