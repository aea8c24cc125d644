package main

import (
	"context"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/config"
)

func configShowCommand(con *console) *cobra.Command {
	return withConfiguration(con, newCommand("show", "Print the effective configuration, without secrets.", `The output is YAML that can be used as a configuration file. Behind a value stands the line or the variable that it comes from; the others are defaults.

Examples:
  mneme config show
  MNEME_WEBMEMORY_MAX_HISTORY=50 mneme config show --config my.yaml`), config.Load, func(_ context.Context, cfg config.Config, _ []string) error {
		text, err := cfg.YAML()
		if err != nil {
			return err
		}
		_, err = con.stdout.Write(text)
		return err
	})
}

// withConfiguration makes c run with the configuration that load returns. It adds the flag --config.
func withConfiguration(con *console, c *cobra.Command, load func(file string, environ []string) (config.Config, error),
	run func(ctx context.Context, cfg config.Config, args []string) error,
) *cobra.Command {
	file := variableFlag(con, c, "config", "MNEME_CONFIG", "", "Configuration `FILE`; mneme.yaml is read without this flag if it is there")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := load(*file, con.environ)
		if err != nil {
			return err
		}
		return run(c.Context(), cfg, args)
	}
	return c
}
