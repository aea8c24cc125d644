package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/term"
)

// toolsCommand returns the commands for the tools of agents.
func toolsCommand(con *console) *cobra.Command {
	return group("tools", "What agents can call: list it, call it by hand, accept what has changed.",
		toolsListCommand(con), toolsCallCommand(con), toolsAcceptCommand(con))
}

// withApiserver makes c run with a client of the apiserver. It adds the flag for the address.
func withApiserver(con *console, c *cobra.Command,
	run func(ctx context.Context, client *api.Client, args []string) error,
) *cobra.Command {
	url := variableFlag(con, c, "url", "MNEME_WEBMEMORY_APISERVER", con.localURL(con.localServices().Apiserver.Listen), "The apiserver's address, a `URL`")
	c.RunE = func(c *cobra.Command, args []string) error {
		carry, err := operatorTransport(con, *url)
		if err != nil {
			return err
		}
		client, err := api.NewClient(*url, &http.Client{Transport: carry})
		if err != nil {
			return usageError{err}
		}
		defer client.Close()
		err = run(c.Context(), client, args)
		var problem *api.Problem
		switch {
		case errors.Is(err, api.ErrUnreachable):
			return fmt.Errorf("nothing answers at %s: start `mneme up` or `mneme apiserver`", *url)
		case errors.As(err, &problem) && problem.Status == http.StatusBadRequest:
			return badUsage("%s", term.Clean(problem.Message))
		case errors.As(err, &problem):
			return errors.New(term.Clean(problem.Message))
		}
		return err
	}
	return c
}

func toolsAcceptCommand(con *console) *cobra.Command {
	return withApiserver(con, newCommand("accept <server>", "Use what a server of tools offers now.", `The names, descriptions, parameters and hints of a server's tools are kept as they were when it was first reached. What differs later is not used, in any process, until it is accepted.

Examples:
  mneme tools ls
  mneme tools accept crm`), func(ctx context.Context, client *api.Client, args []string) error {
		server, err := client.AcceptTools(ctx, args[0])
		if err != nil {
			return err
		}
		fmt.Fprintf(con.stdout, "%s: %d tools are used as they are now\n", term.OneLine(server.Server, 64), server.Tools)
		return nil
	})
}
