package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/cmd/mneme/internal/config"
)

// credential gives the transport by which a command reaches the service at a URL: with a key if
// there is one.
type credential func(url string) (http.RoundTripper, error)

// keyFlag gives a command the flag that holds a key. Without it the key is that of MNEME_KEY, or the
// one that mneme keys use has kept for the address.
func (con *console) keyFlag(c *cobra.Command) credential {
	key := c.Flags().String("key", "", "A `KEY` of the service, where it asks for one; "+
		"others on the machine can see flags ($MNEME_KEY)")
	return func(at string) (http.RoundTripper, error) {
		text := *key
		if text == "" {
			text = con.getenv("MNEME_KEY")
		}
		if text == "" {
			var err error
			if text, err = con.keptKey(at); err != nil {
				return nil, err
			}
		}
		if strings.ContainsAny(text, " \t\r\n") {
			return nil, errors.New("the key has a space or a line feed in it; give it as mneme keys create printed it")
		}
		return access.Bearer{Base: transport(), Key: text}, nil
	}
}

// transport is one of the command's own.
func transport() *http.Transport { return http.DefaultTransport.(*http.Transport).Clone() }

// asOperator is the transport to a service of this machine for who may read the data folder: with
// the internal secret, if there is one.
func (con *console) asOperator(at string) (http.RoundTripper, error) {
	u, err := url.Parse(at)
	if err != nil || !local(u.Hostname()) && con.getenv(config.SecretVar) == "" {
		return transport(), nil // the secret is for nobody else
	}
	cfg, err := config.Load(con.getenv("MNEME_CONFIG"), con.environ)
	if err != nil {
		return nil, err
	}
	secret := cfg.Auth.InternalSecret.Reveal()
	if secret == "" {
		secret, err = access.ReadSecret(cfg.SecretFile())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return access.Carrier{Base: transport(), Secret: secret}, nil
}

// local says whether a host is this machine.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// keyFile is where keys are kept, each behind the address that it is for: one must not go elsewhere.
// Empty: there is no home.
func (con *console) keyFile() string {
	dir := con.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := con.getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "mneme", "key")
}

// keptKey is the key for an address, "" for none.
func (con *console) keptKey(at string) (string, error) {
	path := con.keyFile()
	if path == "" {
		return "", nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the kept key cannot be read: %w; set MNEME_KEY", err)
	}
	for line := range strings.Lines(string(raw)) {
		if base, key, ok := strings.Cut(strings.TrimSpace(line), " "); ok && base == strings.TrimRight(at, "/") {
			return key, nil
		}
	}
	return "", nil
}

// keepKey keeps a key for an address; "" forgets it.
func (con *console) keepKey(at, key string) (path string, err error) {
	if path = con.keyFile(); path == "" {
		return "", errors.New("there is no home to keep a key in; set HOME, or give the key in MNEME_KEY")
	}
	at = strings.TrimRight(at, "/")
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(raw)) {
		if base, _, _ := strings.Cut(line, " "); base != at {
			kept.WriteString(line)
		}
	}
	if key != "" {
		fmt.Fprintf(&kept, "%s %s\n", at, key)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(kept.String())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	return path, err
}
