package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
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

func configCheckCommand(con *console) *cobra.Command {
	c := newCommand("check", "Check the configuration and ask its backends for their models.", `Prints a line for the file and one for each backend. Without --call nothing is paid for: backends are asked which models they have, which shows whether address, key and model names are right. The exit code is 1 if something is wrong.

Examples:
  mneme config check
  mneme config check --call
  mneme config check --config my.yaml`)
	call := c.Flags().Bool("call", false, "Also make one small paid call of a model at each backend")
	return withConfiguration(con, c, config.Load, func(ctx context.Context, cfg config.Config, _ []string) error {
		return checkBackends(ctx, con.stdout, newLogger(con.stderr, cfg.Log), cfg, *call)
	})
}

// checkBackends prints the faults of a configuration and its backends. If call is set, it also makes a paid call at
// each backend.
func checkBackends(ctx context.Context, out io.Writer, log zerolog.Logger, cfg config.Config, call bool) error {
	if err := cmp.Or(checkEndpoints(cfg), config.CheckLog(cfg)); err != nil {
		return err
	}
	ctx, release := cancelOnSignal(ctx)
	defer release()
	fmt.Fprintf(out, "%s: valid\n", cmp.Or(cfg.File(), "no "+config.DefaultFile+", the defaults"))
	if cfg.TLS.On() {
		pair, err := certificate.Open(cfg.TLS.Cert, cfg.TLS.Key, log)
		if err != nil {
			return err
		}
		leaf := pair.Leaf()
		fmt.Fprintf(out, "tls: a certificate for %s, until %s\n", term.OneLine(hosts(leaf), 200),
			leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	faults := 0
	reports := models.Check(ctx, cfg)
	for _, r := range reports {
		err, note := r.Err(cfg), r.Note
		if err == nil && call {
			note, err = callOnce(ctx, cfg, r.Backend)
		}
		if err != nil {
			faults++
			note = err.Error()
		}
		fmt.Fprintf(out, "%s: %s\n", r.Backend, term.OneLine(note, 1000))
	}
	if faults > 0 {
		return fmt.Errorf("%s of %d cannot be used as configured", plural(faults, "backend"), len(reports))
	}
	return nil
}

// hosts returns the names and addresses of a certificate.
func hosts(c *x509.Certificate) string {
	hostnames := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		hostnames = append(hostnames, ip.String())
	}
	return cmp.Or(strings.Join(hostnames, ", "), "no host")
}

// callTime bounds one paid call.
const callTime = 2 * time.Minute

// callOnce calls a model at a backend through a new gateway. The call is streamed and has a tool and the effort of the
// agents, so the vendor rejects it if it would reject the call of an agent.
func callOnce(ctx context.Context, cfg config.Config, backend string) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	single := cfg
	single.Proxy.Active, single.Proxy.TeammateBackend = backend, backend
	single.Proxy.Teammates, single.Proxy.EmbeddingsBackend = nil, ""
	gateway, stop, err := app.Gateway(ctx, single, nil)
	if err != nil {
		return "", err
	}
	defer stop()
	model := append(cfg.ModelsOf(backend), cfg.Agents.Master.Model)[0]
	began := time.Now()
	usage, err := callModel(ctx, openaimodel.New(openaimodel.Config{
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

// callModel asks a model for one word.
func callModel(ctx context.Context, m loop.Model) (usage event.Usage, err error) {
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
