package models

import (
	"bytes"
	"fmt"

	"mneme/cmd/mneme/internal/config"
	"mneme/memory"
)

// File is a mneme.yaml for the choice: one backend for all agents, and the window of a
// server on this machine, which is known from nowhere else. It holds no secret. cfg is
// the configuration without a file; it names the subagents.
func (c Choice) File(cfg config.Config) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by mneme up, which found %s. docs/configuration.md lists every key.\n", c.Source)
	fmt.Fprintf(&b, "proxy:\n  backends:\n    %s:\n      kind: %s\n      base_url: %s\n", c.Backend, c.Kind,
		quoted(c.BaseURL))
	if c.KeyVar != "" {
		fmt.Fprintf(&b, "      api_key_env: %s\n", c.KeyVar)
	}
	fmt.Fprintf(&b, "      model_map: {\"*\": %s}\n", quoted(c.Model))
	if c.Window > 0 {
		fmt.Fprintf(&b, "agents:\n  master: {context_tokens: %d}\n  subagents:\n", c.Window)
		for _, s := range cfg.Agents.Subagents {
			fmt.Fprintf(&b, "    - {name: %s, context_tokens: %d}\n", quoted(s.Name), c.Window)
		}
	}
	return b.Bytes()
}

// quoted is text as YAML, which takes JSON's strings.
func quoted(s string) string {
	text, _ := memory.EncodeJSON(s) // a string always can be
	return string(text)
}
