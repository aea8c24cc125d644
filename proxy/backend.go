package proxy

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"mneme/memory/secrets"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

// Backend answers calls in its own dialect.
type Backend interface {
	// Send returns the answer whatever its status; its body ends the call when it
	// is closed. An error means that there is no answer.
	Send(ctx context.Context, call wire.Call) (*http.Response, error)
}

// backend is a Backend and what the pipelines must know of it.
type backend struct {
	Backend
	name        string
	vendor      string // the vendor that sets its rules
	why         string // that is thought
	guessed     bool   // by its kind alone
	config      BackendConfig
	dialect     wire.Dialect // in which requests and answers are held
	speaks      wire.Dialect // with the vendor: dialect, but for Responses and Interactions, which are held as messages
	models      modelMap
	close       func()
	circuitOpen func() bool   // it failed too often and is not called
	resting     *atomic.Int64 // until when it is not asked if another one can be, in Unix ns, see failed
	ill         *atomic.Int64 // until when conversations that left it do not return, in Unix ns
	cli         *cli          // of kind copilot; nil for any other
	local       bool          // on this machine, so that its models cost nothing unless they have a price
	noRetry     bool          // its calls are not retried, since their caller does that

	knowledge *knowledge
	windows   *windows
	lists     *vendorLists

	uncounted *atomic.Bool // it has no endpoint that counts tokens

	secrets *secrets.Set // what must not come back; nil for none
}

// modelInfo is what is known of a model by the table, the configuration, and what refusals have taught. It is shared and never
// changed.
func (b *backend) modelInfo(model string) *modelInfo {
	return b.knowledge.modelInfo(model, b.configured)
}

// configured is what the vendor takes of a request for a model by the table and the configuration. Where nothing tells
// the backend's vendor, the model's name says which rules hold.
func (b *backend) configured(model string) sanitize.Profile {
	vendor, modelVendor := b.vendor, ""
	if b.guessed {
		if modelVendor = sanitize.VendorOfModel(model); modelVendor != "" {
			vendor = cmp.Or(inDialect(b.config.Kind, modelVendor), vendor)
		}
	}
	p := sanitize.For(vendor, model)
	// What only a guess adds could be refused.
	p.MarksCache = p.MarksCache && (!b.guessed || modelVendor != "")
	switch b.speaks {
	case wire.Responses:
		p = p.OfResponses()
	case wire.Interactions:
		p = p.OfInteractions()
	}
	return b.config.Profile.Apply(p)
}

// modelInfo returns the facts known about a model of a backend.
type modelInfo struct {
	profile sanitize.Profile // with what rules say of it
	rules   []sanitize.Rule  // that refusals have taught
}

// knowledge is what is known of a backend's models. What refusals have taught holds until the gateway ends.
type knowledge struct {
	mu      sync.Mutex
	learned []sanitize.Rule       // the oldest first; guarded by mu
	models  map[string]*modelInfo // made of learned when first asked for; guarded by mu
}

// Clients choose the names of models and tools, so the numbers of what is kept of them are bounded. A rule that is
// forgotten costs one refusal.
const (
	maxModels = 64
	maxRules  = 1024
)

// modelInfo is what is known of a model, beside what is configured for it.
func (k *knowledge) modelInfo(model string, configured func(model string) sanitize.Profile) *modelInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	info := k.models[model]
	if info == nil {
		if k.models == nil || len(k.models) == maxModels {
			k.models = map[string]*modelInfo{}
		}
		info = new(modelInfo)
		for _, r := range k.learned {
			if r.Model == "" || r.Model == model {
				info.rules = append(info.rules, r)
			}
		}
		info.profile = configured(model).Learn(info.rules)
		k.models[strings.Clone(model)] = info
	}
	return info
}

// learn keeps a rule. The newest counts most.
func (k *knowledge) learn(r sanitize.Rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.Model, r.Name = strings.Clone(r.Model), strings.Clone(r.Name)
	k.learned = append(slices.DeleteFunc(k.learned, r.Same), r)
	k.learned = k.learned[max(0, len(k.learned)-maxRules):]
	k.models = nil
}

// taught is what refusals have taught, the newest last.
func (k *knowledge) taught() (rules []string) {
	k.mu.Lock()
	learned := slices.Clone(k.learned) // written without the lock, which every request takes
	k.mu.Unlock()
	for _, r := range learned {
		rules = append(rules, r.String())
	}
	return rules
}

// counter is the backend that counts tokens for b: itself, or an estimate where
// the dialect has no counting.
func (b *backend) counter() *backend {
	c := *b
	if b.speaks == wire.Messages {
		c.Backend = counter{b.Backend, b.uncounted}
		return &c
	}
	c.Backend, c.dialect, c.speaks = estimator{}, wire.Messages, wire.Messages
	return &c
}

// anyModel is the key of a model_map for every model that no other key names.
const anyModel = "*"

// modelMap gives models the names that a backend knows them by.
type modelMap struct {
	names    map[string]string
	families []string // keys other than anyModel, longest first
}

func newModelMap(names map[string]string) modelMap {
	m := modelMap{names: names}
	for name := range names {
		if name != anyModel {
			m.families = append(m.families, name)
		}
	}
	slices.SortFunc(m.families, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return m
}

// MapModel is the name that a backend with this model_map gets for a model.
func MapModel(names map[string]string, model string) string { return newModelMap(names).find(model) }

// find goes by the exact name, then by the longest key that is one or more whole
// words of the name (opus in claude-opus-4-8), then by "*", else leaves the name.
func (m modelMap) find(model string) string {
	if target, ok := m.names[model]; ok && model != anyModel {
		return target
	}
	for _, family := range m.families {
		if containsWord(model, family) {
			return m.names[family]
		}
	}
	if target, ok := m.names[anyModel]; ok {
		return target
	}
	return model
}

// containsWord reports whether word stands in s between separators.
func containsWord(s, word string) bool {
	for start := 0; ; start++ {
		i := strings.Index(s[start:], word)
		if i < 0 {
			return false
		}
		start += i
		end := start + len(word)
		if (start == 0 || separates(s[start-1])) && (end == len(s) || separates(s[end])) {
			return true
		}
	}
}

// separates reports whether c ends a word of a model's name. Claude Code writes a large window as opus[1m].
func separates(c byte) bool { return strings.IndexByte("-./:_@ []", c) >= 0 }

// aliases are the names that clients can rely on.
func (m modelMap) aliases() []string {
	out := slices.Clone(m.families)
	slices.Sort(out)
	return out
}

// accepts reports whether a name leads to a model: one that a key names, or any where
// no key restricts them.
func (m modelMap) accepts(model string) bool {
	_, wildcard := m.names[anyModel]
	if _, exact := m.names[model]; exact || wildcard || len(m.names) == 0 {
		return model != ""
	}
	return slices.ContainsFunc(m.families, func(family string) bool { return containsWord(model, family) })
}
