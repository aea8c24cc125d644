package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/models"
	"mneme/cmd/mneme/internal/term"
)

func upCommand(con *console) *cobra.Command {
	c := newCommand("up", "Run everything in one process.", `Starts webmemory on 127.0.0.1:8080, the apiserver on :8081, the proxy on :8082 and, unless redis.url is set, a store in ./data that redis-cli -p 6380 can read. The first line that it prints is the address of the page.

Without a mneme.yaml it looks for a model: a key in `+strings.Join(models.KeyVars(), ", ")+`, or Ollama or LM Studio on this machine. On a terminal it asks whether to use it and writes mneme.yaml; otherwise an offline demonstration model answers. An existing mneme.yaml is never changed.

Examples:
  mneme up
  mneme up --model auto
  mneme up --model anthropic
  mneme up --model gpt-4.1
  mneme up --model http://127.0.0.1:9090/v1
  mneme up --config my.yaml
  MNEME_DATA_DIR=/var/lib/mneme mneme up`)
	model := variableFlag(con, c, "model", "MNEME_MODEL", "", "Write mneme.yaml with this `MODEL`: auto takes the first that is found; or a vendor, a model's name, a server's URL")
	offline := c.Flags().Bool("offline", false, "Look for no model; the offline demonstration model answers")
	return withConfiguration(con, c, config.Load, func(ctx context.Context, cfg config.Config, _ []string) (err error) {
		if err := checkModelFlags(cfg, *model, *offline); err != nil {
			return err
		}
		if !*offline && !cfg.ChoosesModel() {
			s := search{
				environ: con.environ, places: con.places, out: con.stdout, in: bufio.NewReader(con.stdin),
				ownAddrs: []string{cfg.Webmemory.Listen, cfg.Apiserver.Listen, cfg.Proxy.Listen},
				asks:     term.IsTerminal(con.stdin) && term.IsTerminal(con.stdout),
			}
			if cfg, err = s.configure(ctx, cfg, *model); err != nil {
				return err
			}
		}
		return serve(ctx, con, cfg, app.Up, checkEndpoints)
	})
}

// checkEndpoints returns an error if the configuration lacks something that an endpoint needs.
func checkEndpoints(cfg config.Config) error {
	return cmp.Or(cfg.RequireSecrets(""), cfg.RequireEmbeddings())
}

// autoModel is the value of --model that takes the first model that is found.
const autoModel = "auto"

// checkModelFlags returns an error if the configuration contradicts --model or --offline.
func checkModelFlags(cfg config.Config, requested string, offline bool) error {
	where := cmp.Or(cfg.File(), "the environment")
	switch {
	case offline && requested != "":
		return badUsage("--offline and --model (or MNEME_MODEL) contradict each other; give one of them")
	case offline && cfg.HasModel():
		return fmt.Errorf("--offline: %s names another model; remove proxy.backends there, or the flag", where)
	case requested == "" || !cfg.ChoosesModel() || cfg.HasModel() && requested == autoModel:
		return nil
	}
	for name, b := range cfg.Proxy.Backends {
		for _, model := range b.ModelMap {
			if model == requested {
				return nil
			}
		}
		if name == requested || b.BaseURL != "" && strings.TrimRight(b.BaseURL, "/") == strings.TrimRight(requested, "/") {
			return nil
		}
	}
	return fmt.Errorf("--model %s: %s is there and is never changed; name the model in its proxy.backends, or remove "+
		"the flag", requested, where)
}

// search looks for a model if none is configured.
type search struct {
	environ  []string
	places   models.Places
	ownAddrs []string // addresses of this process, which are no model servers
	in       *bufio.Reader
	out      io.Writer
	asks     bool // a person can answer
}

// errNone indicates that the offline model is to answer.
var errNone = errors.New("no model")

// configure finds a model, writes mneme.yaml and loads it. Without a model, or without consent, it returns cfg.
func (s search) configure(ctx context.Context, cfg config.Config, name string) (config.Config, error) {
	choice, err := s.find(ctx, name)
	if errors.Is(err, errNone) {
		return cfg, nil
	}
	if err != nil {
		return cfg, err
	}
	if err := createFile(config.DefaultFile, choice.File(cfg)); err != nil {
		return cfg, err
	}
	chosen, err := config.Load("", s.environ)
	if err != nil { // a variable contradicts it
		return cfg, errors.Join(err, os.Remove(config.DefaultFile))
	}
	fmt.Fprintf(s.out, "Wrote %s: %s answers, of backend %s.\n", config.DefaultFile, term.OneLine(choice.Model, 100),
		choice.Backend)
	return chosen, nil
}

// createFile writes a new file.
func createFile(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already and is not overwritten", name)
	}
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written (%w); start in a folder that can be written to, or use --offline", name, err)
	}
	return nil
}

// quietTime limits the search of a start without a terminal.
const quietTime = 2 * time.Second

// find returns the model that name stands for. Without a name it asks whether to use the first model that it finds.
func (s search) find(ctx context.Context, name string) (models.Choice, error) {
	if name == "" && !s.asks {
		s.mention(ctx)
		return models.Choice{}, errNone
	}
	candidates, model, err := s.candidates(ctx, name)
	if err != nil {
		return models.Choice{}, err
	}
	choice, problems := choose(ctx, candidates, model)
	switch {
	case choice.Model != "" && name != "":
		return choice, nil
	case name != "":
		return choice, fmt.Errorf("--model %s: %s", name, strings.Join(problems, "; "))
	}
	for _, problem := range problems {
		fmt.Fprintf(s.out, "Not used: %s.\n", term.OneLine(problem, 400))
	}
	if choice.Model == "" {
		return choice, errNone
	}
	fmt.Fprintf(s.out, "%s found: use it with %s? [Y/n] ", sentence(choice.Source), term.OneLine(choice.Model, 100))
	if s.yes() {
		return choice, nil
	}
	fmt.Fprintln(s.out, "The offline model answers; --offline starts without this question.")
	return choice, errNone
}

// candidates returns the places that may have the model that name stands for, and the model's name, which is empty if
// name stands for any model or for a vendor.
func (s search) candidates(ctx context.Context, name string) (candidates []models.Candidate, model string, err error) {
	if strings.Contains(name, "://") {
		server, err := models.NewServer(name)
		if err != nil {
			return nil, "", usageError{err}
		}
		return []models.Candidate{server.Candidate()}, "", nil
	}
	candidates = models.Find(ctx, s.environ, s.places, s.ownAddrs...)
	if problem := s.places.Absent(s.environ, candidates, name); problem != "" {
		return nil, "", fmt.Errorf("--model %s: %s", name, problem)
	}
	if name != "" && len(candidates) == 0 {
		return nil, "", fmt.Errorf("--model %s: there is no model to use; export one of %s, start Ollama or LM Studio, "+
			"or use --offline", name, strings.Join(models.KeyVars(), ", "))
	}
	if name == "" || name == autoModel {
		return candidates, "", nil
	}
	for _, c := range candidates {
		if strings.EqualFold(c.Backend, name) {
			return []models.Candidate{c}, "", nil
		}
	}
	return candidates, name, nil
}

// choose returns the first candidate that has the model or, without a name, any model that mneme proposes. It also
// returns the problems of the others.
func choose(ctx context.Context, candidates []models.Candidate, model string) (best models.Choice, problems []string) {
	var names []string
	for _, c := range candidates {
		choice, err := c.Choose(ctx, model)
		switch {
		case err != nil:
			problems = append(problems, err.Error())
		case choice.Model != "":
			return choice, problems
		case model == "":
			problems = append(problems, fmt.Sprintf("%s has no model that mneme proposes; name one with --model, such as %s",
				c.BaseURL, formatNames(choice.Models)))
		}
		names = append(names, choice.Models...)
	}
	if model != "" && len(candidates) > 0 && len(problems) == 0 {
		problems = append(problems, "there is no such model")
	}
	if model != "" && len(names) > 0 {
		problems = append(problems, "the nearest names: "+strings.Join(api.Closest(model, names, 3), ", "))
	}
	return best, problems
}

// mention prints how to use the first candidate. It sends no request to a vendor, because the key's owner has not
// agreed to its use.
func (s search) mention(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	for _, c := range models.Find(ctx, s.environ, s.places, s.ownAddrs...) {
		if c.Local() {
			if _, err := c.Choose(ctx, ""); err != nil {
				if ctx.Err() == nil {
					fmt.Fprintf(s.out, "No model is used: %v.\n", err)
				}
				continue
			}
		}
		fmt.Fprintf(s.out, "%s found. To use it, run `%s up --model auto`, which writes %s. The offline model answers "+
			"until then.\n", sentence(c.Source), app.Command(), config.DefaultFile)
		return
	}
}

// formatNames lists the first few names.
func formatNames(names []string) string {
	text := strings.Join(names[:min(8, len(names))], ", ")
	if len(names) > 8 {
		text += ", …"
	}
	return text
}

// yes reports whether the answer is y, yes or an empty line. Input that ends without an answer is a no.
func (s search) yes() bool {
	line, err := s.in.ReadString('\n')
	if err != nil {
		fmt.Fprintln(s.out)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes" || answer == "" && err == nil
}

// sentence capitalizes the first letter.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
