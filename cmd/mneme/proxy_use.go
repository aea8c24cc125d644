package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"mneme/cmd/mneme/internal/term"
	"mneme/proxy/wire"
)

// proxyFlags are common to the commands that speak to the gateway's admin group.
type proxyFlags struct {
	URL string `aliases:"proxy" placeholder:"URL" env:"MNEME_APISERVER_PROXY" help:"The gateway's address, http://127.0.0.1:8082 if not given."`
}

const (
	adminTimeout = 30 * time.Second
	maxAdmin     = 8 << 20 // bytes of an answer
)

// ask does one request of the admin group and reads its JSON into answer.
func (f proxyFlags) ask(ctx context.Context, method, path string, body []byte, answer any) error {
	base := strings.TrimRight(cmp.Or(f.URL, "http://127.0.0.1:8082"), "/")
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is no URL of the gateway; give one such as http://127.0.0.1:8082", base)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens on %s: start `mneme up` or `mneme proxy`", base)
	case err != nil:
		var request *url.Error
		if errors.As(err, &request) {
			err = request.Err
		}
		return fmt.Errorf("reaching %s: %w", base, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxAdmin))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", base, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s refuses (%d): %s", base, resp.StatusCode,
			term.OneLine(wire.ReadFailure(resp.StatusCode, got).Message, 500))
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("%s did not answer as the gateway does; is --url right? (%w)", base, err)
	}
	return nil
}

// backendState is the admin group's view of the backends.
type backendState struct {
	Active   string   `json:"active"`
	Backends []string `json:"backends"`
}

const adminBackend = "/admin/backend"

type proxyUseCmd struct {
	proxyFlags
	Name string `arg:"" optional:"" help:"Backend that the main pipeline is to use; without it they are listed."`
}

func (proxyUseCmd) Help() string {
	return `Requests that begin later go to that backend; those of teammates stay where the configuration sends them. With a Redis the switch holds for all gateways on it and after a restart.

Examples:
  mneme proxy use
  mneme proxy use glm
  mneme proxy use glm --url http://127.0.0.1:8082`
}

func (c proxyUseCmd) Run(ctx context.Context, con *console) error {
	var before, after backendState
	if err := c.ask(ctx, http.MethodGet, adminBackend, nil, &before); err != nil {
		return err
	}
	if c.Name == "" {
		for _, name := range before.Backends {
			mark := " "
			if name == before.Active {
				mark = "*"
			}
			fmt.Fprintln(con.stdout, mark, term.OneLine(name, 100))
		}
		return nil
	}
	if !slices.Contains(before.Backends, c.Name) {
		return fmt.Errorf("the gateway has no backend %q; it has %s", c.Name,
			term.OneLine(strings.Join(before.Backends, ", "), 1000))
	}
	body, err := json.Marshal(map[string]string{"active": c.Name})
	if err != nil {
		return err
	}
	// Also when it is active already: by configuration, perhaps, and not by choice.
	if err := c.ask(ctx, http.MethodPut, adminBackend, body, &after); err != nil {
		return err
	}
	if before.Active == after.Active {
		fmt.Fprintln(con.stdout, term.OneLine(after.Active, 100), "stays active")
		return nil
	}
	fmt.Fprintln(con.stdout, term.OneLine(before.Active, 100), "→", term.OneLine(after.Active, 100))
	return nil
}
