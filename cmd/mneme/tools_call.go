package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
)

func toolsCallCommand(con *console) *cobra.Command {
	c := newCommand("call <tool> [<arguments>]", "Call a tool by hand, with arguments in JSON.", `The tool is named as models call it, or by its id. The call is of no run: nobody is asked before it, it is not claimed, and it does what the tool does.

Examples:
  mneme tools call find_customer '{"name":"Aliya"}' --agent support
  mneme tools call crm/find_customer '{"name":"Aliya"}' --agent support`)
	agent := c.Flags().String("agent", "", "The subagent whose tool it is, a `NAME`; the master if none is given")
	return withApiserver(con, c, func(ctx context.Context, client *api.Client, args []string) error {
		call := api.ToolCall{Agent: memory.Agent(*agent), Tool: args[0], Arguments: json.RawMessage(`{}`)}
		if len(args) > 1 {
			if call.Arguments = json.RawMessage(args[1]); !json.Valid(call.Arguments) {
				return badUsage("the arguments are no JSON: %s", term.OneLine(args[1], 200))
			}
		}
		result, err := client.CallTool(ctx, call)
		if err != nil {
			return err
		}
		switch text := term.Clean(result.Result); {
		case result.Asks != "":
			return fmt.Errorf("the tool asks a person, who can only answer in a run: %s", term.Clean(result.Asks))
		case result.Failed:
			return fmt.Errorf("the tool failed: %s", text)
		default:
			fmt.Fprintln(con.stdout, text)
		}
		return nil
	})
}
