package main

import (
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

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/term"
	"mneme/proxy"
	"mneme/proxy/wire"
)

// gateway is a client of the gateway's admin routes.
type gateway struct {
	url        *string
	credential credential
}

const adminTimeout = 30 * time.Second

// call sends a request and decodes the JSON of the response into answer.
func (g gateway) call(ctx context.Context, method, path string, body []byte, answer any) error {
	base := strings.TrimRight(*g.url, "/")
	if _, err := parseURL(base, "the gateway", "http://127.0.0.1:8082"); err != nil {
		return err
	}
	carry, err := g.credential(base)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	status, got, err := sendRequest(ctx, carry, method, base+path, body)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens on %s: start `mneme up` or `mneme proxy`", base)
	case err != nil:
		if request, ok := errors.AsType[*url.Error](err); ok {
			err = request.Err
		}
		return fmt.Errorf("reaching %s: %w", base, err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s refuses (%d): %s", base, status,
			term.OneLine(wire.ReadFailure(status, got).Message, 500))
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("%s did not answer as the gateway does; is --url right? (%w)", base, err)
	}
	return nil
}

const adminBackend = "/admin/backend"

func proxyUseCommand(con *console) *cobra.Command {
	c := newCommand("use [<name>]", "Show the gateway's backends and routes, or switch the active one.", `Without <name> they are listed, each backend with what its refusals have taught the gateway since it began. Requests that begin later go to that backend or route; those of teammates stay where the configuration sends them. With a Redis the switch holds for all gateways on it and after a restart.

Examples:
  mneme proxy use
  mneme proxy use glm
  mneme proxy use glm --url http://127.0.0.1:8082`)
	url := variableFlag(con, c, "url", "MNEME_APISERVER_PROXY", con.localURL(con.localServices().Proxy.Listen), "The gateway's address, a `URL`")
	gateway := gateway{url, keyFlag(con, c)}
	c.RunE = func(c *cobra.Command, args []string) error {
		return useBackend(c.Context(), con.stdout, gateway, strings.Join(args, ""))
	}
	return c
}

// useBackend activates a backend or a route. Without a name it lists them.
func useBackend(ctx context.Context, out io.Writer, gateway gateway, name string) error {
	var current, updated proxy.BackendState
	if err := gateway.call(ctx, http.MethodGet, adminBackend, nil, &current); err != nil {
		return err
	}
	names := slices.Concat(current.Backends, current.Routes)
	if name == "" {
		for _, backend := range names {
			mark := " "
			if backend == current.Active {
				mark = "*"
			}
			line := backend
			if choices := current.Choices[backend]; len(choices) > 0 {
				line += " (" + strings.Join(choices, ", ") + ")"
			}
			fmt.Fprintln(out, mark, term.OneLine(line, 500))
			for _, rule := range current.Learned[backend] {
				fmt.Fprintln(out, "    learned:", term.OneLine(rule, 1000))
			}
		}
		return nil
	}
	if !slices.Contains(names, name) {
		return fmt.Errorf("the gateway has no backend %q; it has %s", name, term.OneLine(strings.Join(names, ", "), 1000))
	}
	body, err := json.Marshal(map[string]string{"active": name})
	if err != nil {
		return err
	}
	// Also if the backend is active, because the request makes the configured backend a choice.
	if err := gateway.call(ctx, http.MethodPut, adminBackend, body, &updated); err != nil {
		return err
	}
	if current.Active == updated.Active {
		fmt.Fprintln(out, term.OneLine(updated.Active, 100), "stays active")
		return nil
	}
	fmt.Fprintln(out, term.OneLine(current.Active, 100), "→", term.OneLine(updated.Active, 100))
	return nil
}
