package app

import (
	"net"
	"net/http"
	neturl "net/url"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/crossorigin"
	"mneme/memory/telemetry"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// guarded is a service's handler behind the guards against web pages and against
// bodies that never end, whose refusals count among the service's requests.
func guarded(cfg config.Config, h http.Handler, refuse crossorigin.Refuse, seen *telemetry.Service) http.Handler {
	c := crossorigin.Config{Own: ownHosts(cfg)}
	for _, text := range cfg.HTTP.AllowedHosts {
		host, _ := crossorigin.Host(text) // the configuration was checked
		c.AllowedHosts = append(c.AllowedHosts, host)
	}
	for _, text := range cfg.HTTP.AllowedOrigins {
		origin, _ := crossorigin.Origin(text)
		c.AllowedOrigins = append(c.AllowedOrigins, origin)
	}
	counted := func(w http.ResponseWriter, r *http.Request, no *api.Problem) {
		seen.Count("(refused)", r.Method, no.Status, 0)
		refuse(w, r, no)
	}
	return bounded(crossorigin.New(c, seen.Often).Protect(h, counted), cfg.HTTP.BodyTimeout, counted)
}

// ownHosts are the names under which the services listen and call each other.
func ownHosts(cfg config.Config) (hosts []string) {
	for _, addr := range []string{cfg.Webmemory.Listen, cfg.Apiserver.Listen, cfg.Proxy.Listen} {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			hosts = append(hosts, host)
		}
	}
	for _, base := range []string{cfg.Webmemory.Apiserver, cfg.Webmemory.Advertise, cfg.Apiserver.Advertise,
		cfg.Apiserver.Proxy, cfg.Proxy.Advertise} {
		if u, err := neturl.Parse(base); err == nil {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// refuseRequest answers as webmemory and the apiserver do.
func refuseRequest(w http.ResponseWriter, _ *http.Request, no *api.Problem) {
	api.WriteProblem(w, no)
}

// refuseCall answers as the gateway does.
func refuseCall(w http.ResponseWriter, r *http.Request, no *api.Problem) {
	proxy.Refuse(w, r, wire.Failure{Status: no.Status, Code: no.Code, Message: no.Message})
}
