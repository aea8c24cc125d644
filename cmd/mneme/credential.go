package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/access/price"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory/journal"
)

// credential returns the transport for the service at a URL. The transport sends the key, if there is one.
type credential func(url string) (http.RoundTripper, error)

// keyFlag adds the flag --key. Its default is MNEME_KEY, or else the key that mneme keys use stored for the address.
func keyFlag(con *console, c *cobra.Command) credential {
	key := c.Flags().String("key", "", "A `KEY` of the service, where it asks for one; "+
		"others on the machine can see flags ($MNEME_KEY)")
	return func(addr string) (http.RoundTripper, error) {
		text := *key
		if text == "" {
			text = con.getenv("MNEME_KEY")
		}
		if text == "" {
			var err error
			if text, err = storedKey(con, addr); err != nil {
				return nil, err
			}
		}
		if strings.ContainsAny(text, " \t\r\n") {
			return nil, badUsage("the key has a space or a line feed in it; give it as mneme keys create printed it")
		}
		return access.Bearer{Base: con.transport(), Key: text}, nil
	}
}

// parseURL parses the URL of a service.
func parseURL(raw, service, example string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, badUsage("%q is no URL of %s; give one such as %s", raw, service, example)
	}
	return u, nil
}

// operatorTransport returns a transport that sends the internal secret, if there is one and the service is on this
// machine or the secret is in the environment.
func operatorTransport(con *console, url string) (http.RoundTripper, error) {
	if !price.Local(url) && con.getenv(config.SecretVar) == "" {
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

// keyFile returns the path of the stored keys, or "" if there is no home. Each line holds an address and its key. A key
// must go to no other address.
func keyFile(con *console) string {
	return term.UserFile(con.getenv, "XDG_CONFIG_HOME", ".config", "key")
}

// storedKey returns the key for an address, or "". It returns an error if others can read or replace the file.
func storedKey(con *console, addr string) (string, error) {
	path := keyFile(con)
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
	if err := errors.Join(checkPrivate(path, 0o077), checkPrivate(filepath.Dir(path), 0o022)); err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if base, key, ok := strings.Cut(strings.TrimSpace(line), " "); ok && base == strings.TrimRight(addr, "/") {
			return key, nil
		}
	}
	return "", nil
}

// checkPrivate returns an error if others have rights to a file or folder.
func checkPrivate(path string, forbidden fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return fmt.Errorf("the kept keys are open to others on this machine: %s has the mode %04o. Take their rights away "+
			"(chmod go= %s), and rotate the keys if somebody may have read them", path, mode, path)
	}
	return nil
}

// storeKey stores a key for an address. An empty key deletes the stored one. A lock file serializes processes, and only
// the owner has rights to the new file. exposed is an error if others had rights to the old file.
func storeKey(con *console, addr, key string) (path string, exposed, err error) {
	if path = keyFile(con); path == "" {
		return "", nil, errors.New("there is no home to keep a key in; set HOME, or give the key in MNEME_KEY")
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	lock, err := journal.WaitForLock(path + ".lock")
	if err != nil {
		return "", nil, err
	}
	defer lock.Close()
	raw, err := os.ReadFile(path)
	switch {
	case err == nil:
		exposed = checkPrivate(path, 0o077)
	case !errors.Is(err, fs.ErrNotExist):
		return "", nil, err
	}
	if checkPrivate(dir, 0o077) != nil {
		if err := os.Chmod(dir, 0o700); err != nil {
			return "", nil, err
		}
	}
	return path, exposed, writeFile(path, true, func(out io.Writer) error {
		_, err := io.WriteString(out, replaceKey(string(raw), strings.TrimRight(addr, "/"), key))
		return err
	})
}

// replaceKey returns the text of the key file with another key for an address, or with none.
func replaceKey(text, addr, key string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if base, _, _ := strings.Cut(line, " "); base != addr {
			out.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	if key != "" {
		fmt.Fprintf(&out, "%s %s\n", addr, key)
	}
	return out.String()
}
