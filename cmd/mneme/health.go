package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
)

// healthCommand is also the health check of the containers.
func healthCommand(con *console) *cobra.Command {
	c := newCommand("health [<url>]", "Ask a service whether it is ready.", `Prints the service's own words; the exit code is 0 when it is ready, else 1. Without a URL it is the webmemory of this machine's configuration; an address without http:// or https:// is asked by TLS if the configuration has tls. /readyz is asked unless there is a path.

Examples:
  mneme health
  mneme health 127.0.0.1:8082
  mneme health http://127.0.0.1:8082/healthz`)
	timeout := c.Flags().Duration("timeout", 5*time.Second, "How long to wait for the answer")
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := getStatus(c.Context(), con, append(args, con.localServices().Webmemory.Listen)[0], *timeout)
		if err != nil {
			return err
		}
		fmt.Fprintln(con.stdout, text)
		return nil
	}
	return c
}

// errNoListener indicates that no program listens on an address.
var errNoListener = errors.New("nothing listens")

// getStatus sends a GET to a service and returns the body. A status other than 200 is an error.
func getStatus(ctx context.Context, con *console, service string, timeout time.Duration) (string, error) {
	if host, _, err := net.SplitHostPort(service); err == nil && !strings.Contains(host, "/") {
		service = con.localURL(service)
	}
	u, err := parseURL(service, "a service", "http://127.0.0.1:8080")
	if err != nil {
		return "", err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, body, err := sendRequest(ctx, con.transport(), http.MethodGet, u.String(), nil)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "", fmt.Errorf("%w on %s", errNoListener, u.Host)
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Errorf("%s did not answer within %s", u.Host, timeout)
	case err != nil:
		return "", err
	}
	text := strings.TrimSpace(term.Clean(string(body)))
	if status != http.StatusOK {
		return "", fmt.Errorf("%s is not ready: %d %s %s", u.Host, status, http.StatusText(status), text)
	}
	return text, nil
}

// sendRequest sends a request. It returns the status and the body, at most 8 MiB of it.
func sendRequest(ctx context.Context, via http.RoundTripper, method, target string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: via}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return 0, nil, fmt.Errorf("reading the answer of %s: %w", req.URL.Host, err)
	}
	return resp.StatusCode, got, nil
}
