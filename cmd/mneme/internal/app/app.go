// Package app is the composition root: one function per service, and Up, which is
// the same services in one process. Everything is opened in order and closed in
// the opposite one, within bounded time; a service that fails to start takes down
// what was started before it.
package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"mneme/access"
	"mneme/access/limit"
	"mneme/cmd/mneme/internal/certificate"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/inprocess"
	"mneme/memory/embedded"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
)

// Options are what a service needs beside its configuration.
type Options struct {
	Out   io.Writer // for people: where to go next
	Log   zerolog.Logger
	Ready func(Addrs) // called once everything listens; may be nil
	// Reload has what the services take over while they run read anew by Load, with each signal; nil for never.
	Reload <-chan os.Signal
	Load   func() (config.Config, error)
	// Transport reaches the vendors of models; nil is the network.
	Transport http.RoundTripper
}

// Addrs say where the services listen, host:port; empty for what does not run in
// this process.
type Addrs struct {
	Webmemory string
	Apiserver string
	Proxy     string
	Redis     string // the embedded store
	// Certificate is that of the services; nil if they speak plain HTTP.
	Certificate *x509.Certificate
}

// URL is that of an address among these, as a program on this machine calls it. With TLS it has a name of the
// certificate in it, unless that has the address, too.
func (a Addrs) URL(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if a.Certificate == nil {
		return "http://" + net.JoinHostPort(host, port)
	}
	if names := plainNames(a.Certificate); len(names) > 0 && a.Certificate.VerifyHostname(host) != nil {
		host = names[0]
	}
	return "https://" + net.JoinHostPort(host, port)
}

// plainNames are the names of a certificate without those that stand for many.
func plainNames(c *x509.Certificate) []string {
	return slices.DeleteFunc(slices.Clone(c.DNSNames), func(name string) bool { return strings.Contains(name, "*") })
}

// Page is the address of the page for people, as a browser on this machine finds it.
func (a Addrs) Page() string { return a.URL(a.Webmemory) + "/" }

// shutdownTime is how long a stop waits for open connections, behind drain_timeout.
const shutdownTime = 5 * time.Second

// stack closes what was opened, last first.
type stack struct {
	log     zerolog.Logger
	closers []closer
}

type closer struct {
	what  string
	close func() error
}

func (s *stack) push(what string, close func() error) {
	s.closers = append(s.closers, closer{what, close})
}

// unwind closes everything, whatever goes wrong on the way.
func (s *stack) unwind() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		if err := s.closers[i].close(); err != nil {
			s.log.Warn().Err(err).Str("part", s.closers[i].what).Msg("did not end cleanly")
		}
	}
	s.closers = nil
}

// app is one process while it runs.
type app struct {
	stack
	ctx   context.Context // ends with the caller's, or when a listener fails
	fail  context.CancelCauseFunc
	addrs Addrs

	reloads  reloads
	started  []func()                      // what the log says once all has started, behind the welcome
	together bool                          // all services are in this process
	sockets  bool                          // they reach each other over the network all the same
	hosts    inprocess.Hosts               // those that they reach without it
	services map[string]*telemetry.Service // what runs in this process, by its name
	traces   *tracing.Exporter             // of all of it; nil where no collector is named
	redis    redis.UniversalClient         // once it is open
	gated    *access.Gate                  // once a service has opened it; nil where no key is asked for
	keys     *access.Store                 // those that gated takes; nil for none
	memory   *redisstore.Store             // of redis, once it is used
	limiter  *limit.Limiter                // over redis, once it is used
	embedded *embedded.Server              // once it is open; nil over a Redis
	fresh    bool                          // embedded was not there before
	pair     *certificate.Pair             // once a service has opened it; nil for plain HTTP
}

// run builds with start, then serves until ctx ends or a part fails.
func run(ctx context.Context, cfg config.Config, o Options, start func(*app) error) error {
	a := &app{stack: stack{log: o.Log}, reloads: reloads{current: cfg}, services: map[string]*telemetry.Service{}}
	a.ctx, a.fail = context.WithCancelCause(ctx)
	defer a.fail(nil)
	defer a.unwind()
	if err := start(a); err != nil {
		return err
	}
	for _, warning := range cfg.Cleartext() {
		o.Log.Warn().Msg(warning)
	}
	for _, say := range a.started {
		say()
	}
	if o.Ready != nil {
		o.Ready(a.addrs)
	}
	for a.ctx.Err() == nil {
		select {
		case <-o.Reload:
			a.reloads.reload(o)
		case <-a.ctx.Done():
		}
	}
	if ctx.Err() != nil {
		o.Log.Info().Msg("stopping")
		return nil
	}
	return context.Cause(a.ctx)
}

// client is for requests to a server that is none of ours, over a pool of its own and without a
// timeout, since answers stream as long as a run may last.
func (a *app) client(svc *telemetry.Service, peer string) *http.Client {
	return a.clientOver(svc, peer, &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute})
}

// ourClient is client to another service of ours, which is told the internal secret and the caller's name.
func (a *app) ourClient(svc *telemetry.Service, peer string) *http.Client {
	return a.clientOver(svc, peer, a.gated.Carry(between(a)))
}

// asCaller is the transport to another service of ours that is to do what the caller itself may, and no more.
func asCaller(a *app, svc *telemetry.Service, peer string) http.RoundTripper {
	base := between(a)
	if a.gated != nil {
		base = access.Carrier{Base: base, Secret: a.gated.Secret, AsCaller: true}
	}
	return a.clientOver(svc, peer, base).Transport
}

// between is the way from one service of ours to another: inside this process where that has both.
func between(a *app) http.RoundTripper {
	// Of several replicas one that cannot be connected to is passed over within the time that a post has.
	network := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, DialTLSContext: a.dialTLS()}
	return certificate.Explained{Base: a.hosts.Transport(network)}
}

func (a *app) clientOver(svc *telemetry.Service, peer string, base http.RoundTripper) *http.Client {
	c := &http.Client{Transport: svc.Transport(peer, base), CheckRedirect: telemetry.NoRedirect}
	a.push("connections to "+peer, func() error { c.CloseIdleConnections(); return nil })
	return c
}

// listen takes a service's port; key is the setting that names it.
func (a *app) listen(cfg config.Config, svc *telemetry.Service, addr, key string) (net.Listener, error) {
	if err := cfg.RequireAuth(key, addr); err != nil {
		return nil, err
	}
	if err := a.openPair(cfg, svc); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken: stop the program that listens there, or set %s to another address", addr, key)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s (%s): %w", addr, key, err)
	}
	a.push(key, func() error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return l, nil
}

// serve serves h on l until the stack is unwound; drain runs before connections
// are closed, for drainTime at most. shutdown takes no more of them and waits for those that are there.
func (a *app) serve(what string, svc *telemetry.Service, l net.Listener, h http.Handler, drainTime time.Duration,
	drain func(context.Context) error) (shutdown func(context.Context) error) {
	l = withSpares(l, svc.Often)
	server := &http.Server{Handler: healthOnly(h), ConnContext: noteShort, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, ErrorLog: log.New(serverLog{svc.Often}, "", 0)}
	leave := func(context.Context) error { return nil }
	if a.together && !a.sockets {
		_, host, _ := strings.Cut(a.url(l), "://")
		inner := h
		if a.pair != nil {
			inner = withTLSState(h)
		}
		leave = a.hosts.Serve(host, inner)
	}
	serve := server.Serve
	if a.pair != nil {
		server.TLSConfig = a.pair.Server()
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	served := make(chan struct{}) // serve has returned
	go func() {
		defer close(served)
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.fail(fmt.Errorf("%s cannot serve any more: %w", what, err))
		}
	}()
	a.push(what, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		drained := drain(ctx)
		cancel()
		ctx, cancel = context.WithTimeout(context.Background(), shutdownTime)
		defer cancel()
		err := errors.Join(server.Shutdown(ctx), leave(ctx))
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		<-served
		return errors.Join(drained, err)
	})
	return server.Shutdown
}

// withTLSState marks requests that arrive by a pipe as secured by TLS.
func withTLSState(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true}
		h.ServeHTTP(w, r)
	})
}

// url is how another service of this process reaches a listener, wherever it is
// bound.
func (a *app) url(l net.Listener) string {
	addr := l.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		return fmt.Sprintf("%s://127.0.0.1:%d", a.scheme(), addr.Port)
	}
	return a.scheme() + "://" + addr.String()
}

// advertised is the base URL under which other machines reach what listens on l. Of
// a listener on all addresses it is the address from which Redis is reached, where
// the others are as well.
func (a *app) advertised(l net.Listener, cfg config.Redis) string {
	addr := l.Addr().(*net.TCPAddr)
	if !addr.IP.IsUnspecified() {
		return a.url(l)
	}
	o, err := RedisOptions(cfg)
	if err != nil || len(o.Addrs) == 0 {
		return a.url(l)
	}
	for _, target := range o.Addrs {
		c, err := net.DialTimeout("udp", target, 2*time.Second) // which sends nothing
		if err != nil {
			continue
		}
		ip := c.LocalAddr().(*net.UDPAddr).IP
		_ = c.Close()
		return a.scheme() + "://" + net.JoinHostPort(ip.String(), strconv.Itoa(addr.Port))
	}
	return a.url(l)
}
