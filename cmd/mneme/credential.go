package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/access/price"
	"mneme/cmd/mneme/internal/certificate"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
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
			return nil, wrong("the key has a space or a line feed in it; give it as mneme keys create printed it")
		}
		return access.Bearer{Base: con.transport(), Key: text}, nil
	}
}

// transport is one of the command's own. Services with the certificate that is configured on this machine are
// known by it.
func (con *console) transport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if own := con.own().TLS; own.On() {
		t.DialTLSContext = certificate.TrustIn(own.Cert).Dial
	}
	return certificate.Explained{Base: t}
}

// own is where the services of this machine listen, and by which certificate.
func (con *console) own() config.Local {
	if con.local == nil {
		own := config.LoadLocal(con.getenv("MNEME_CONFIG"), con.environ)
		con.local = &own
	}
	return *con.local
}

// ownURL is that of an address of this machine at which a service listens. One that listens on all addresses is called
// by the loopback one.
func (con *console) ownURL(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	return con.own().TLS.Scheme() + "://" + addr
}

// checkURL refuses what is no URL of a service.
func checkURL(raw, service, such string) error {
	if u, err := url.Parse(raw); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return wrong("%q is no URL of %s; give one such as %s", raw, service, such)
	}
	return nil
}

// asOperator is the transport to a service of this machine for a user that may read the data
// folder: with the internal secret, if there is one.
func (con *console) asOperator(at string) (http.RoundTripper, error) {
	if !price.Local(at) && con.getenv(config.SecretVar) == "" {
		return con.transport(), nil // the secret goes to no other machine
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
	return access.Carrier{Base: con.transport(), Secret: secret}, nil
}

// keyFile is where keys are kept, each behind the address that it is for: one must not go elsewhere.
// Empty: there is no home.
func (con *console) keyFile() string {
	return term.UserFile(con.getenv, "XDG_CONFIG_HOME", ".config", "key")
}

// keptKey is the key for an address, "" for none. A file that others can read or replace is refused.
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
	if err := errors.Join(closed(path, 0o077), closed(filepath.Dir(path), 0o022)); err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if base, key, ok := strings.Cut(strings.TrimSpace(line), " "); ok && base == strings.TrimRight(at, "/") {
			return key, nil
		}
	}
	return "", nil
}

// closed is an error that says what to do if others have rights to a file or folder.
func closed(path string, others fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&others != 0 {
		return fmt.Errorf("the kept keys are open to others on this machine: %s has the mode %04o. Take their rights away "+
			"(chmod go= %s), and rotate the keys if somebody may have read them", path, mode, path)
	}
	return nil
}

// keepKey keeps a key for an address; "" forgets it. The file is replaced as a whole, with rights for its owner alone;
// others that are written at the same time wait. open is an error if others had rights to it so far.
func (con *console) keepKey(at, key string) (path string, open, err error) {
	if path = con.keyFile(); path == "" {
		return "", nil, errors.New("there is no home to keep a key in; set HOME, or give the key in MNEME_KEY")
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", nil, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", nil, err
	}
	raw, err := os.ReadFile(path)
	switch {
	case err == nil:
		open = closed(path, 0o077)
	case !errors.Is(err, fs.ErrNotExist):
		return "", nil, err
	}
	if closed(dir, 0o077) != nil {
		if err := os.Chmod(dir, 0o700); err != nil {
			return "", nil, err
		}
	}
	return path, open, writeFile(path, true, func(out io.Writer) error {
		_, err := io.WriteString(out, withKey(string(raw), strings.TrimRight(at, "/"), key))
		return err
	})
}

// withKey is the text of the file of keys with another key for an address, or with none.
func withKey(kept, at, key string) string {
	var out strings.Builder
	for line := range strings.Lines(kept) {
		if base, _, _ := strings.Cut(line, " "); base != at {
			out.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	if key != "" {
		fmt.Fprintf(&out, "%s %s\n", at, key)
	}
	return out.String()
}
