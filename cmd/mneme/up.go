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
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/models"
	"mneme/cmd/mneme/internal/term"
)

func (con *console) up() *cobra.Command {
	c := &cobra.Command{
		Use: "up", Short: "Run everything in one process.",
		Long: `Starts webmemory on 127.0.0.1:8080, the apiserver on :8081, the proxy on :8082 and, unless redis.url is set, a store in ./data that redis-cli -p 6380 can read. The first line that it prints is the address of a page that shows what goes on; --open opens it.

Without a mneme.yaml it looks for a model: a key in ` + strings.Join(models.KeyVars(), ", ") + `, or Ollama or LM Studio on this machine. On a terminal it asks whether to use it and writes mneme.yaml; otherwise an offline demonstration model answers. An existing mneme.yaml is never changed.

Examples:
  mneme up
  mneme up --open
  mneme up --model auto
  mneme up --model anthropic
  mneme up --model gpt-4.1
  mneme up --model http://127.0.0.1:9090/v1
  mneme up --config my.yaml
  MNEME_DATA_DIR=/var/lib/mneme mneme up`,
	}
	model := c.Flags().String("model", "", "Write mneme.yaml with this `MODEL`: auto takes the first that is found; or a vendor, a model's name, a server's URL")
	con.fromVariable(c, "model", "MNEME_MODEL")
	offline := c.Flags().Bool("offline", false, "Look for no model; the offline demonstration model answers")
	open := c.Flags().Bool("open", false, "Open the page in a browser once it is there")
	return con.withConfiguration(c, func(ctx context.Context, cfg config.Config, _ []string) (err error) {
		if err := agree(cfg, *model, *offline); err != nil {
			return err
		}
		if !*offline && !cfg.ChoosesModel() {
			s := search{
				environ: con.environ, places: con.places, out: con.stdout, in: bufio.NewReader(con.stdin),
				own:  []string{cfg.Webmemory.Listen, cfg.Apiserver.Listen, cfg.Proxy.Listen},
				asks: term.IsTerminal(con.stdin) && term.IsTerminal(con.stdout),
			}
			if cfg.Limits.BoundsMoney() {
				s.priced = cfg.Priced
			}
			if cfg, err = s.configure(ctx, cfg, *model); err != nil {
				return err
			}
		}
		var ready []func(app.Addrs)
		if *open {
			ready = append(ready, func(at app.Addrs) { con.browse(at.Page()) })
		}
		return con.serve(ctx, cfg, app.Up, checkEndpoints, ready...)
	})
}

// checkEndpoints wants everything that the endpoints of the configuration need.
func checkEndpoints(cfg config.Config) error {
	return cmp.Or(cfg.RequireSecrets(""), cfg.RequireEmbeddings())
}

// autoModel is the value of --model that takes the first model that is found.
const autoModel = "auto"

// agree refuses flags that a configuration contradicts. One that --model wrote at an
// earlier start agrees.
func agree(cfg config.Config, wanted string, offline bool) error {
	where := cmp.Or(cfg.File(), "the environment")
	switch {
	case offline && wanted != "":
		return wrong("--offline and --model (or MNEME_MODEL) contradict each other; give one of them")
	case offline && cfg.HasModel():
		return fmt.Errorf("--offline: %s names another model; remove proxy.backends there, or the flag", where)
	case wanted == "" || !cfg.ChoosesModel() || cfg.HasModel() && wanted == autoModel:
		return nil
	}
	for name, b := range cfg.Proxy.Backends {
		for _, model := range b.ModelMap {
			if model == wanted {
				return nil
			}
		}
		if name == wanted || b.BaseURL != "" && strings.TrimRight(b.BaseURL, "/") == strings.TrimRight(wanted, "/") {
			return nil
		}
	}
	return fmt.Errorf("--model %s: %s is there and is never changed; name the model in its proxy.backends, or remove "+
		"the flag", wanted, where)
}

// search looks for a model for an operator that has configured none.
type search struct {
	environ []string
	places  models.Places
	own     []string // where this process will listen, which variables may name for other programs
	in      *bufio.Reader
	out     io.Writer
	asks    bool                             // there is a person to ask
	priced  func(address, model string) bool // which models are proposed; nil: all
}

// errNone is that there is no model to be had, and that this is all right.
var errNone = errors.New("no model")

// configure finds a model, has it confirmed, writes mneme.yaml and loads it. Without a
// model, or without consent, cfg stays as it is.
func (s search) configure(ctx context.Context, cfg config.Config, name string) (config.Config, error) {
	choice, err := s.find(ctx, name)
	if errors.Is(err, errNone) {
		return cfg, nil
	}
	if err != nil {
		return cfg, err
	}
	if err := create(config.DefaultFile, choice.File(cfg)); err != nil {
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

// create writes a file that is not there yet.
func create(name string, text []byte) error {
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

// quietTime bounds the search of a start that asks no question.
const quietTime = 2 * time.Second

// find gives the model that name stands for, asking where it is not sure.
func (s search) find(ctx context.Context, name string) (models.Choice, error) {
	if strings.Contains(name, "://") {
		server, err := models.NewServer(name)
		if err != nil {
			return models.Choice{}, usageError{err}
		}
		return s.choose(ctx, server.Candidate(), "")
	}
	if name == "" && !s.asks {
		short, cancel := context.WithTimeout(ctx, quietTime)
		defer cancel()
		ctx = short
	}
	found := models.Find(ctx, s.environ, s.places, s.own...)
	for i, c := range found {
		if s.priced != nil {
			found[i] = c.Priced(s.priced)
		}
	}
	switch {
	case name == "" && !s.asks:
		s.mention(ctx, found)
		return models.Choice{}, errNone
	case name == "":
		return s.propose(ctx, found)
	case s.places.Absent(s.environ, found, name) != "":
		return models.Choice{}, fmt.Errorf("--model %s: %s", name, s.places.Absent(s.environ, found, name))
	case len(found) == 0:
		return models.Choice{},
			fmt.Errorf("--model %s: there is no model to use; export one of %s, start Ollama or LM Studio, or use --offline",
				name, strings.Join(models.KeyVars(), ", "))
	case name == autoModel:
		return s.first(ctx, found)
	}
	for _, c := range found {
		if strings.EqualFold(c.Backend, name) {
			return s.choose(ctx, c, "")
		}
	}
	return s.named(ctx, found, name)
}

// mention prints how to use the first candidate. It sends no request to a vendor, because the key's owner has not
// agreed to its use.
func (s search) mention(ctx context.Context, found []models.Candidate) {
	for _, c := range found {
		if c.Local() {
			if _, err := c.Choose(ctx, ""); err != nil {
				if ctx.Err() == nil {
					fmt.Fprintf(s.out, "No model is used: %v.\n", err)
				}
				continue
			}
		}
		fmt.Fprintf(s.out, "%s found. To use it, run `%s up --model auto`, which writes %s. The offline model answers "+
			"until then.\n", sentence(c.Found), app.Command(), config.DefaultFile)
		return
	}
}

// propose asks once whether to use the first candidate that works.
func (s search) propose(ctx context.Context, found []models.Candidate) (models.Choice, error) {
	for _, c := range found {
		choice, err := c.Choose(ctx, "")
		if err != nil {
			fmt.Fprintf(s.out, "%s found, but %s.\n", sentence(c.Found), term.OneLine(err.Error(), 400))
			continue
		}
		if choice.Model == "" {
			return s.which(choice)
		}
		fmt.Fprintf(s.out, "%s found: use it with %s? [Y/n] ", sentence(c.Found), term.OneLine(choice.Model, 100))
		if s.yes() {
			return choice, nil
		}
		fmt.Fprintln(s.out, "The offline model answers; --offline starts without this question.")
		return models.Choice{}, errNone
	}
	return models.Choice{}, errNone
}

// first is the first candidate that works.
func (s search) first(ctx context.Context, found []models.Candidate) (models.Choice, error) {
	var problems []string
	for _, c := range found {
		choice, err := s.choose(ctx, c, "")
		if err == nil {
			return choice, nil
		}
		problems = append(problems, err.Error())
	}
	return models.Choice{}, fmt.Errorf("%s; mend that, or use --offline", strings.Join(problems, "; "))
}

// choose takes one candidate, with its model of this name if one is given.
func (s search) choose(ctx context.Context, c models.Candidate, name string) (models.Choice, error) {
	choice, err := c.Choose(ctx, name)
	switch {
	case err != nil || choice.Model != "":
		return choice, err
	case s.asks:
		return s.which(choice)
	}
	return choice, fmt.Errorf("%s lists none of the models that we would propose; name one with --model, such as %s",
		c.BaseURL, some(choice.Models))
}

// named is the candidate that has a model of this name.
func (s search) named(ctx context.Context, found []models.Candidate, name string) (models.Choice, error) {
	var problems, known []string
	for _, c := range found {
		choice, err := c.Choose(ctx, name)
		if err != nil {
			problems = append(problems, err.Error())
		}
		if err == nil && choice.Model != "" {
			return choice, nil
		}
		known = append(known, choice.Models...)
	}
	if len(known) > 0 {
		problems = append(problems, "the nearest names: "+strings.Join(api.Closest(name, known, 3), ", "))
	}
	return models.Choice{}, fmt.Errorf("--model %s: there is no such model; %s", name, strings.Join(problems, "; "))
}

// maxQuestions bounds how often the operator may mistype a name.
const maxQuestions = 3

// which asks for the name of a model.
func (s search) which(c models.Choice) (models.Choice, error) {
	if len(c.Models) == 0 {
		return c, errNone
	}
	fmt.Fprintf(s.out, "%s found. It has %d models, such as %s.\n", sentence(c.Found), len(c.Models), some(c.Models))
	for range maxQuestions {
		fmt.Fprint(s.out, "Use it with which model? (empty for none) ")
		line, err := s.in.ReadString('\n')
		name := strings.TrimSpace(line)
		if name == "" {
			if err != nil {
				fmt.Fprintln(s.out)
			}
			return c, errNone
		}
		if slices.Contains(c.Models, name) {
			c.Model = name
			return c, nil
		}
		fmt.Fprintf(s.out, "There is no %s; the nearest names: %s\n", term.OneLine(name, 100),
			strings.Join(api.Closest(name, c.Models, 3), ", "))
	}
	return c, errNone
}

// some are the first few names.
func some(names []string) string {
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

// sentence begins with a capital letter.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
