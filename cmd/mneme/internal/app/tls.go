package app

import (
	"context"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/certificate"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory/telemetry"
)

// openPair opens the certificate of the services, which those of one process share, if the configuration
// names one, and shows in the metrics of seen when it ends.
func (a *app) openPair(cfg config.Config, svc *telemetry.Service) error {
	if a.pair == nil && cfg.TLS.On() {
		pair, err := certificate.Open(cfg.TLS.Cert, cfg.TLS.Key, svc.Log)
		if err != nil {
			return err
		}
		a.pair, a.addrs.Certificate = pair, pair.Leaf()
	}
	svc.MustRegister(expiry{a.pair})
	return nil
}

// expiry is the metric that says when a certificate ends; without one it has no value.
type expiry struct{ pair *certificate.Pair }

var expires = prometheus.NewDesc("mneme_tls_certificate_expires_seconds",
	"When the certificate that is served ends, in seconds of Unix time; with tls only.", nil, nil)

// Describe is of a prometheus.Collector.
func (e expiry) Describe(ch chan<- *prometheus.Desc) { ch <- expires }

// Collect is of a prometheus.Collector.
func (e expiry) Collect(ch chan<- prometheus.Metric) {
	if e.pair != nil {
		ch <- prometheus.MustNewConstMetric(expires, prometheus.GaugeValue, float64(e.pair.Leaf().NotAfter.Unix()))
	}
}

// scheme is that of the URLs of what listens in this process.
func (a *app) scheme() string {
	if a.pair != nil {
		return "https"
	}
	return "http"
}

// dialTLS is how other services of ours are reached by https; without a certificate of our own, as any server.
func (a *app) dialTLS() func(ctx context.Context, network, addr string) (net.Conn, error) {
	trust := certificate.Trust{}
	if a.pair != nil {
		trust = a.pair.Trust()
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return trust.DialAs(ctx, network, addr, api.ServerName(ctx))
	}
}

// serverLog takes what http.Server has to say. Handshakes that fail are most often those of scanners and probes.
type serverLog struct{ log zerolog.Logger }

func (s serverLog) Write(text []byte) (int, error) {
	line := strings.TrimSpace(string(text))
	ev := s.log.Error()
	if strings.HasPrefix(line, "http: TLS handshake error") {
		ev = s.log.Debug()
	}
	ev.Msg(line)
	return len(text), nil
}
