package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/term"
	"mneme/master"
	"mneme/memory"
)

// tools are the commands about what agents can call.
func (con *console) tools() *cobra.Command {
	return group("tools", "What agents can call: list it, call it by hand, accept what has changed.",
		con.toolsLs(), con.toolsCall(), con.toolsAccept())
}

// withApiserver makes a command that speaks to an apiserver.
func withApiserver(con *console, c *cobra.Command,
	run func(ctx context.Context, client *api.Client, args []string) error,
) *cobra.Command {
	url := c.Flags().String("url", con.localURL(con.localServices().Apiserver.Listen), "The apiserver's address, a `URL`")
	bindVariable(con, c, "url", "MNEME_WEBMEMORY_APISERVER")
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
		var known *api.Problem
		switch {
		case errors.Is(err, api.ErrUnreachable):
			return fmt.Errorf("nothing answers at %s: start `mneme up` or `mneme apiserver`", *url)
		case errors.As(err, &known) && known.Status == http.StatusBadRequest:
			return wrong("%s", term.Clean(known.Message))
		case errors.As(err, &known):
			return errors.New(term.Clean(known.Message))
		}
		return err
	}
	return c
}

func (con *console) toolsLs() *cobra.Command {
	c := newCommand("ls", "List the tools of all agents, and the servers that they come from.", `ASKS says when a person is asked before a call. A tool that is not what was accepted is not used; it stands below its server.

Examples:
  mneme tools ls
  mneme tools ls --json | jq .servers`)
	asJSON := c.Flags().Bool("json", false, "Print JSON")
	return withApiserver(con, c, func(ctx context.Context, client *api.Client, _ []string) error {
		list, err := client.Tools(ctx)
		return printReport(con.stdout, toolList(list), err, *asJSON)
	})
}

// toolList is to be shown.
type toolList api.ToolList

func (l toolList) Text() string {
	if len(l.Tools) == 0 && len(l.Servers) == 0 {
		return "there are no tools\n"
	}
	rows := [][]string{{"AGENT", "TOOL", "ID", "KIND", "ASKS", "STATE"}}
	for _, t := range l.Tools {
		rows = append(rows, []string{term.OneLine(cmp.Or(string(t.Agent), master.Version), 64), term.OneLine(t.Name, 64),
			term.OneLine(t.ID, 200), term.OneLine(t.Kind, 20), term.OneLine(cmp.Or(t.Policy, "never"), 40),
			term.OneLine(t.State, 20)})
	}
	var b strings.Builder
	b.WriteString(formatTable(rows))
	for _, says := range l.LeftOut {
		fmt.Fprintf(&b, "\n%s\n", term.OneLine(says, 2000))
	}
	for i, s := range l.Servers {
		if i == 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "%s: %s, %d tools", term.OneLine(s.Server, 64), term.OneLine(s.State, 20), s.Tools)
		if s.Reason != "" {
			fmt.Fprintf(&b, "; %s", term.OneLine(s.Reason, 200))
		}
		fmt.Fprintln(&b)
		if len(s.Changed) > 0 {
			fmt.Fprintf(&b, "  not what was accepted, and not used: %s (mneme tools accept %s)\n",
				term.OneLine(strings.Join(s.Changed, ", "), 2000), term.OneLine(s.Server, 64))
		}
		if len(s.Refused) > 0 {
			fmt.Fprintf(&b, "  cannot be used: %s\n", term.OneLine(strings.Join(s.Refused, ", "), 2000))
		}
	}
	return b.String()
}

func (con *console) toolsCall() *cobra.Command {
	c := newCommand("call <tool> [<arguments>]", "Call a tool by hand, with arguments in JSON.", `The tool is named as models call it, or by its id. The call is of no run: nobody is asked before it, it is not claimed, and it does what the tool does.

Examples:
  mneme tools call find_customer '{"name":"Aliya"}' --agent support
  mneme tools call crm/find_customer '{"name":"Aliya"}' --agent support`)
	agent := c.Flags().String("agent", "", "The subagent whose tool it is, a `NAME`; the master if none is given")
	return withApiserver(con, c, func(ctx context.Context, client *api.Client, args []string) error {
		call := api.ToolCall{Agent: memory.Agent(*agent), Tool: args[0], Arguments: json.RawMessage(`{}`)}
		if len(args) > 1 {
			if call.Arguments = json.RawMessage(args[1]); !json.Valid(call.Arguments) {
				return wrong("the arguments are no JSON: %s", term.OneLine(args[1], 200))
			}
		}
		called, err := client.CallTool(ctx, call)
		if err != nil {
			return err
		}
		switch text := term.Clean(called.Result); {
		case called.Asks != "":
			return fmt.Errorf("the tool asks a person, who can only answer in a run: %s", term.Clean(called.Asks))
		case called.Failed:
			return fmt.Errorf("the tool failed: %s", text)
		default:
			fmt.Fprintln(con.stdout, text)
		}
		return nil
	})
}

func (con *console) toolsAccept() *cobra.Command {
	c := newCommand("accept <server>", "Use what a server of tools offers now.", `The names, descriptions, parameters and hints of a server's tools are kept as they were when it was first reached. What differs later is not used, in any process, until it is accepted.

Examples:
  mneme tools ls
  mneme tools accept crm`)
	return withApiserver(con, c, func(ctx context.Context, client *api.Client, args []string) error {
		now, err := client.AcceptTools(ctx, args[0])
		if err == nil {
			fmt.Fprintf(con.stdout, "%s: %d tools are used as they are now\n", term.OneLine(now.Server, 64), now.Tools)
		}
		return err
	})
}
