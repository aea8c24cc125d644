package config

import (
	"cmp"
	"os"

	"github.com/goccy/go-yaml"
)

// TLS names the certificate and the key of the services' ports; without them they speak plain HTTP.
type TLS struct {
	Cert string `yaml:"cert"` // a file in PEM: the services' own certificate, then those of its CA
	Key  string `yaml:"key"`  // a file in PEM
}

// On says whether the ports speak TLS.
func (t TLS) On() bool { return t.Cert != "" }

// Scheme is that of the services' URLs.
func (t TLS) Scheme() string {
	if t.On() {
		return "https"
	}
	return "http"
}

func (t TLS) check(string, Config) error {
	return cmp.Or(
		when(t.Cert != "" && t.Key == "", "tls.cert", "there is no key for it; name the file of its private key in tls.key"),
		when(t.Key != "" && t.Cert == "", "tls.key", "there is no certificate for it; name its file in tls.cert"),
	)
}

// completeTLS gives the addresses by which the services call each other by default the scheme of their ports.
func (c *Config) completeTLS() {
	for key, base := range map[string]*string{
		"webmemory.apiserver": &c.Webmemory.Apiserver, "apiserver.proxy": &c.Apiserver.Proxy,
	} {
		if c.TLS.On() && !c.origin.has(key) {
			*base = "https://" + (*base)[len("http://"):]
		}
	}
}

// Local is what a command that only speaks to the services of this machine needs to know of their configuration.
type Local struct {
	TLS       TLS      `yaml:"tls"`
	Webmemory Endpoint `yaml:"webmemory"`
	Apiserver Endpoint `yaml:"apiserver"`
	Proxy     Endpoint `yaml:"proxy"`
}

// Endpoint is the address at which a service listens, host:port.
type Endpoint struct {
	Listen string `yaml:"listen"`
}

// LoadLocal is the part of the configuration that Load would read. Whatever else is wrong with the file is no matter
// of these commands.
func LoadLocal(path string, environ []string) Local {
	var c Local
	if text, err := os.ReadFile(cmp.Or(path, DefaultFile)); err == nil {
		_ = yaml.Unmarshal(text, &c) // of a file that is no YAML there is none
	}
	vars, d := Environ(environ), Default()
	c.TLS = TLS{Cert: cmp.Or(vars["MNEME_TLS_CERT"], c.TLS.Cert), Key: cmp.Or(vars["MNEME_TLS_KEY"], c.TLS.Key)}
	c.Webmemory.Listen = cmp.Or(vars["MNEME_WEBMEMORY_LISTEN"], c.Webmemory.Listen, d.Webmemory.Listen)
	c.Apiserver.Listen = cmp.Or(vars["MNEME_APISERVER_LISTEN"], c.Apiserver.Listen, d.Apiserver.Listen)
	c.Proxy.Listen = cmp.Or(vars["MNEME_PROXY_LISTEN"], c.Proxy.Listen, d.Proxy.Listen)
	return c
}
