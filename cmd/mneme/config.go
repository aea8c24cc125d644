package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/certificate"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/models"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/secrets"
	"mneme/subagent/loop"
	"mneme/subagent/openaimodel"
	"mneme/subagent/tools"
)

func (con *console) configCheck() *cobra.Command {
	c := newCommand("check", "Check the configuration and ask its backends for their models.", `Prints a line for the file and one for each backend. Without --call nothing is paid for: backends are asked which models they have, which shows whether address, key and model names are right. The exit code is 1 if something is wrong.

Examples:
  mneme config check
  mneme config check --call
  mneme config check --config my.yaml`)
	call := c.Flags().Bool("call", false, "Also make one small paid call of a model at each backend")
	return withConfiguration(con, c, config.Load, func(ctx context.Context, cfg config.Config, _ []string) error {
		return con.check(ctx, cfg, *call)
	})
}

func (con *console) configShow() *cobra.Command {
	c := newCommand("show", "Print the effective configuration, without secrets.", `The output is YAML that can be used as a configuration file. Behind a value stands the line or the variable that it comes from; the others are defaults.

Examples:
  mneme config show
  MNEME_WEBMEMORY_MAX_HISTORY=50 mneme config show --config my.yaml`)
	return withConfiguration(con, c, config.Load, func(_ context.Context, cfg config.Config, _ []string) error {
		text, err := cfg.YAML()
		if err != nil {
			return err
		}
		_, err = con.stdout.Write(text)
		return err
	})
}

// check prints what is wrong with a configuration and its backends; call also calls a
// model of each, which costs.
func (con *console) check(ctx context.Context, cfg config.Config, call bool) error {
	if err := cmp.Or(checkEndpoints(cfg), config.CheckLog(cfg)); err != nil {
		return err
	}
	ctx, release := untilSignal(ctx)
	defer release()
	fmt.Fprintf(con.stdout, "%s: valid\n", cmp.Or(cfg.File(), "no "+config.DefaultFile+", the defaults"))
	if cfg.TLS.On() {
		pair, err := certificate.Open(cfg.TLS.Cert, cfg.TLS.Key, newLogger(con.stderr, cfg.Log))
		if err != nil {
			return err
		}
		leaf := pair.Leaf()
		fmt.Fprintf(con.stdout, "tls: a certificate for %s, until %s\n", term.OneLine(hosts(leaf), 200),
			leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	wrong := 0
	reports := models.Check(ctx, cfg)
	for _, r := range reports {
		err, note := r.Err(cfg), r.Note
		if err == nil && call {
			note, err = callOnce(ctx, cfg, r.Backend)
		}
		if err != nil {
			wrong++
			note = err.Error()
		}
		fmt.Fprintf(con.stdout, "%s: %s\n", r.Backend, term.OneLine(note, 1000))
	}
	if wrong > 0 {
		return fmt.Errorf("%s of %d cannot be used as configured", plural(wrong, "backend"), len(reports))
	}
	return nil
}

// hosts are those that a certificate is for.
func hosts(c *x509.Certificate) string {
	all := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	return cmp.Or(strings.Join(all, ", "), "no host")
}

// callTime bounds one paid call.
const callTime = 2 * time.Minute

// callOnce calls a model at a backend as the agents do: through a gateway of its own,
// streamed, with a tool and their effort, so that whatever the vendor would refuse of an
// agent's call it refuses here.
func callOnce(ctx context.Context, cfg config.Config, backend string) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	alone := cfg
	alone.Proxy.Active, alone.Proxy.TeammateBackend = backend, backend
	alone.Proxy.Teammates, alone.Proxy.EmbeddingsBackend = nil, ""
	gateway, stop, err := app.Gateway(ctx, alone, nil)
	if err != nil {
		return "", err
	}
	defer stop()
	model := append(cfg.ModelsOf(backend), cfg.Agents.Master.Model)[0]
	began := time.Now()
	usage, err := say(ctx, openaimodel.New(openaimodel.Config{
		BaseURL: gateway, Model: model, ReasoningEffort: cfg.Agents.Master.ReasoningEffort,
	}))
	took := time.Since(began)
	if err != nil {
		key := secrets.New(cfg.Proxy.Backends[backend].APIKeyEnv.Reveal())
		return "", errors.New("a call failed: " + key.Text(err.Error()))
	}
	return fmt.Sprintf("ok: a call of %s was answered in %.1f s (%d tokens in, %d out)", model, took.Seconds(),
		usage.InputTokens, usage.OutputTokens), nil
}

// say has a model say one word.
func say(ctx context.Context, m loop.Model) (usage event.Usage, err error) {
	r := loop.Request{
		System:   "You check a connection.",
		Messages: []memory.Message{{Role: "user", Content: "Answer with the word ok and nothing else."}},
		Tools:    []loop.Spec{tools.Calculator().Spec()},
	}
	for delta, err := range m.Generate(ctx, r) {
		if err != nil {
			return usage, err
		}
		usage = usage.Add(delta.Usage)
	}
	return usage, nil
}

// withConfiguration makes c run with the configuration that load returns. It adds the flag --config.
func withConfiguration(con *console, c *cobra.Command, load func(file string, environ []string) (config.Config, error),
	run func(ctx context.Context, cfg config.Config, args []string) error,
) *cobra.Command {
	file := c.Flags().String("config", "", "Configuration `FILE`; mneme.yaml is read without this flag if it is there")
	bindVariable(con, c, "config", "MNEME_CONFIG")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := load(*file, con.environ)
		if err != nil {
			return err
		}
		return run(c.Context(), cfg, args)
	}
	return c
}
