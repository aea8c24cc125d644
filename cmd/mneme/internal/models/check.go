package models

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/apiserver/api"
	"mneme/cmd/mneme/internal/config"
	"mneme/proxy"
)

// sentence says what is wrong with a candidate.
func (c Candidate) sentence(err error) error {
	switch {
	case errors.Is(err, errRefused) && c.KeyVar != "":
		return fmt.Errorf("%s is refused by %s; check the key", c.KeyVar, hostOf(c.BaseURL))
	case errors.Is(err, errRefused):
		return fmt.Errorf("%s wants a key; write a backend with api_key_env into mneme.yaml (docs/configuration.md)",
			c.BaseURL)
	case errors.Is(err, errSilent):
		return fmt.Errorf("%s cannot be reached %s", c.BaseURL, detail(err))
	case errors.Is(err, errTroubled):
		return fmt.Errorf("%s cannot answer now %s; try again later", c.BaseURL, detail(err))
	}
	return fmt.Errorf("%s does not list its models as an API of kind %s does", c.BaseURL, c.Kind)
}

// detail is what an error of this package has in brackets, with them.
func detail(err error) string { return err.Error()[strings.LastIndex(err.Error(), "("):] }

func hostOf(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return base
	}
	return u.Host
}

// Report is what is known of a backend without a paid call.
type Report struct {
	Note    string // what was seen, if nothing is wrong
	Key     string // the setting that is wrong, inside the backend; empty for the backend as a whole
	Problem string // what is wrong and how to mend it, one sentence; empty if nothing is
}

// Checked is the report on a backend of the configuration.
type Checked struct {
	Backend string
	Report
}

// Err is the problem as one sentence with its place in the configuration, nil if there
// is none.
func (r Checked) Err(cfg config.Config) error {
	if r.Problem == "" {
		return nil
	}
	return cfg.BackendError(r.Backend, r.Key, r.Problem)
}

// checkTime bounds the wait for a backend.
const checkTime = 15 * time.Second

// Check asks every backend for its models, all at the same time, and compares them with
// those that the agents will ask of it. The reports are in the order of the names.
func Check(ctx context.Context, cfg config.Config) []Checked {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var reports []Checked
	for _, name := range slices.Sorted(maps.Keys(cfg.Proxy.Backends)) {
		reports = append(reports, Checked{Backend: name})
	}
	var asking sync.WaitGroup
	for i := range reports {
		asking.Go(func() {
			b := cfg.Proxy.Backends[reports[i].Backend]
			reports[i].Report = check(ctx, b, cfg.ModelsOf(reports[i].Backend))
		})
	}
	asking.Wait()
	return reports
}

// check asks a backend; names are the models as the agents call them.
func check(ctx context.Context, b config.Backend, names []string) Report {
	switch {
	case b.Kind == config.KindOffline:
		return Report{Note: "ok: the offline model, inside this process"}
	case b.Kind == config.KindCopilot:
		return Report{Note: "not checked: a Copilot CLI lists no models"}
	case b.Auth == "passthrough":
		return Report{Note: "not checked: it takes its callers' keys and has none of its own"}
	}
	vendor := API{Kind: b.Kind, BaseURL: b.BaseURL}
	if b.Auth != "none" {
		vendor.Key = b.APIKeyEnv.Reveal()
	}
	ids, err := vendor.list(ctx)
	if errors.Is(err, errNoList) && (b.Kind == config.KindOpenAI || b.Kind == config.KindResponses) {
		deeper := vendor
		deeper.BaseURL = strings.TrimRight(b.BaseURL, "/") + "/v1"
		if _, err := deeper.list(ctx); err == nil || errors.Is(err, errRefused) {
			return Report{Key: "base_url", Problem: "the API begins one level deeper; write " + deeper.BaseURL}
		}
	}
	if err != nil {
		return failed(b, err)
	}
	return compare(ctx, b, vendor, ids, names)
}

// failed says what it means that there is no list.
func failed(b config.Backend, err error) Report {
	switch {
	case errors.Is(err, errRefused) && b.APIKeyEnv.Name == "":
		return Report{Key: "api_key_env", Problem: fmt.Sprintf("%s wants a key; name the variable that holds it",
			hostOf(b.BaseURL))}
	case errors.Is(err, errRefused):
		return Report{Key: "api_key_env", Problem: fmt.Sprintf("%s refuses the key in %s %s; put a valid one there",
			hostOf(b.BaseURL), b.APIKeyEnv.Name, detail(err))}
	case errors.Is(err, errSilent):
		return Report{Key: "base_url", Problem: fmt.Sprintf("%s cannot be reached %s; start it, or correct the address",
			b.BaseURL, detail(err))}
	case errors.Is(err, errTroubled):
		return Report{Problem: fmt.Sprintf("%s cannot answer now %s; it is asked again when it is needed", hostOf(b.BaseURL),
			detail(err))}
	}
	return Report{Note: fmt.Sprintf("not checked: %s lists no models, so neither key nor model names could be checked",
		hostOf(b.BaseURL))}
}

// compare finds the first model that the vendor does not have.
func compare(ctx context.Context, b config.Backend, vendor API, ids, names []string) Report {
	if len(ids) == 0 || deploys(b.BaseURL) {
		return Report{Note: "ok: it answers, and names no models to compare with"}
	}
	var have []string
	for _, name := range names {
		model := proxy.MapModel(b.ModelMap, name)
		if slices.Contains(have, model) {
			continue
		}
		if _, ok := listed(ids, model); ok || vendor.has(ctx, model) {
			have = append(have, model)
			continue
		}
		if model == name {
			return Report{Key: "model_map", Problem: fmt.Sprintf(
				"%s has no model %q, which is a name of ours; write model_map: {\"*\": %q}", hostOf(b.BaseURL), name,
				proposal(b, ids))}
		}
		return Report{Key: "model_map", Problem: fmt.Sprintf("%s has no model %q; the nearest of its names: %s",
			hostOf(b.BaseURL), model, strings.Join(api.Closest(model, ids, 3), ", "))}
	}
	note := fmt.Sprintf("ok: it lists %d models", len(ids))
	if len(have) > 0 {
		note += ", among them " + strings.Join(have, ", ")
	}
	return Report{Note: note}
}

// proposal is a model for an operator that named none.
func proposal(b config.Backend, ids []string) string {
	for _, v := range vendors {
		if hostOf(v.BaseURL) != hostOf(b.BaseURL) {
			continue
		}
		for _, p := range v.Preferred {
			if id, ok := listed(ids, p); ok {
				return id
			}
		}
	}
	return ids[0]
}

// deploys says whether a host's models have names that its customers chose and that
// its list does not have.
func deploys(base string) bool {
	u, err := url.Parse(base)
	return err == nil && strings.HasSuffix(u.Hostname(), ".azure.com")
}

// snapshot is what an id has behind the name of the model that it is a version of.
var snapshot = regexp.MustCompile(`^-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|\d{3})$`)

// variants are OpenRouter's, which stand behind a colon and are not listed.
var variants = []string{"exacto", "floor", "free", "nitro", "online", "thinking"}

// listed finds the id of a model. Vendors list the dated versions of some models only,
// and take the bare name too; others take a variant behind a colon.
func listed(ids []string, model string) (string, bool) {
	if slices.Contains(ids, model) {
		return model, true
	}
	for _, id := range ids {
		rest, ok := strings.CutPrefix(id, model)
		if ok && (rest == ":latest" || snapshot.MatchString(rest)) {
			return id, true
		}
	}
	name, variant, hasVariant := strings.Cut(strings.TrimPrefix(model, "models/"), ":")
	if (!hasVariant || slices.Contains(variants, variant)) && slices.Contains(ids, name) {
		return model, true
	}
	return "", false
}
