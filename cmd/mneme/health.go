package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"mneme/cmd/mneme/internal/term"
)

// healthCmd is also what containers use as their health check.
type healthCmd struct {
	URL     string        `arg:"" optional:"" default:"http://127.0.0.1:8080" help:"The service; /readyz is asked unless a path is given (${default})."`
	Timeout time.Duration `default:"5s" help:"How long to wait for the answer (${default})."`
}

func (healthCmd) Help() string {
	return `Prints the service's own words; the exit code is 0 when it is ready, else 1.

Examples:
  mneme health
  mneme health http://127.0.0.1:8082
  mneme health http://127.0.0.1:8082/healthz`
}

func (c healthCmd) Run(ctx context.Context, con *console) error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is no URL of a service; give one such as http://127.0.0.1:8080", c.URL)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens on %s", u.Host)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %s", u.Host, c.Timeout)
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", u.Host, err)
	}
	text := strings.TrimSpace(term.Clean(string(body)))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s is not ready: %s %s", u.Host, resp.Status, text)
	}
	fmt.Fprintln(con.stdout, text)
	return nil
}
