package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"mneme/access"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/access/tally"
	"mneme/memory"
	"mneme/proxy"
)

// Limits bound what tenants and users may use of models. What a key may use is said where the key is made.
type Limits struct {
	Tenants map[string]Limit `yaml:"tenants" env:"-"` // by name
	Users   Limit            `yaml:"users" envPrefix:"USERS_"`
}

// Limit is what one tenant or one user may use; empty for all.
type Limit struct {
	Rate   string `yaml:"rate" env:"RATE"`     // see access.ParseRates
	Budget string `yaml:"budget" env:"BUDGET"` // see access.ParseBudgets
}

// Budgets are how limits are kept.
type Budgets struct {
	WhenAway     string        `yaml:"when_away" env:"WHEN_AWAY"`         // refuse or allow
	AwayCalls    int           `yaml:"away_calls" env:"AWAY_CALLS"`       // with allow: of one process in one outage
	Lease        time.Duration `yaml:"lease" env:"LEASE"`                 // of a reservation
	Unclosed     string        `yaml:"unclosed" env:"UNCLOSED"`           // estimate or release
	AnswerTokens int           `yaml:"answer_tokens" env:"ANSWER_TOKENS"` // bounds an answer without a bound of its own
	Unpriced     string        `yaml:"unpriced" env:"UNPRICED"`           // refuse or allow, where money is bounded
}

// Usage is how calls of models are counted.
type Usage struct {
	Keep time.Duration `yaml:"keep" env:"KEEP"` // of the counters of a day
}

func (u Usage) validate() error {
	return when(u.Keep < 24*time.Hour || u.Keep > tally.MostKeep, "usage.keep",
		"must be from 24h, a day, to %s, ten years, not %s", tally.MostKeep, u.Keep)
}

// Price is what a model costs, in USD per million tokens.
type Price struct {
	Input       *float64 `yaml:"input" env:"INPUT"`
	CachedInput *float64 `yaml:"cached_input,omitempty" env:"CACHED_INPUT"` // left out: as Input
	CacheWrite  *float64 `yaml:"cache_write,omitempty" env:"CACHE_WRITE"`   // left out: as Input
	Output      *float64 `yaml:"output" env:"OUTPUT"`
}

func defaultBudgets() Budgets {
	return Budgets{
		WhenAway: string(limit.Refuse), AwayCalls: 100, Lease: 10 * time.Minute, Unclosed: string(limit.ChargeEstimate),
		AnswerTokens: 4096, Unpriced: string(limit.Refuse),
	}
}

// Any says whether anything is bounded.
func (l Limits) Any() bool { return len(l.Tenants) > 0 || l.Users != Limit{} }

// ForTenants are the limits of tenants by their names.
func (l Limits) ForTenants() map[string]access.Limits {
	out := map[string]access.Limits{}
	for name, one := range l.Tenants {
		out[name] = one.parsed()
	}
	return out
}

// ForUsers are the limits of each user.
func (l Limits) ForUsers() access.Limits { return l.Users.parsed() }

// parsed reads texts that validate has read already.
func (l Limit) parsed() (out access.Limits) {
	out.Rate, _ = access.ParseRates(l.Rate)
	out.Budget, _ = access.ParseBudgets(l.Budget)
	return out
}

func (l Limit) validate(key string) error {
	_, rate := access.ParseRates(l.Rate)
	_, budget := access.ParseBudgets(l.Budget)
	return cmp.Or(
		when(rate != nil, key+".rate", "%v", rate),
		when(budget != nil, key+".budget", "%v", budget),
	)
}

func (l Limits) validate() error {
	for _, name := range slices.Sorted(maps.Keys(l.Tenants)) {
		key := join("limits.tenants", name)
		tenant, err := memory.ParseTenant(name)
		if err := cmp.Or(
			when(err != nil || tenant.String() != name, key, "a tenant is 1 to 32 characters of a-z 0-9 -, not %q", name),
			l.Tenants[name].validate(key),
		); err != nil {
			return err
		}
	}
	return l.Users.validate("limits.users")
}

func (b Budgets) validate() error {
	return cmp.Or(
		oneOf("budgets.when_away", b.WhenAway, string(limit.Refuse), string(limit.Allow)),
		positive("budgets.away_calls", b.AwayCalls),
		positive("budgets.lease", b.Lease),
		oneOf("budgets.unclosed", b.Unclosed, string(limit.ChargeEstimate), string(limit.Release)),
		positive("budgets.answer_tokens", b.AnswerTokens),
		oneOf("budgets.unpriced", b.Unpriced, string(limit.Refuse), string(limit.Allow)),
	)
}

// mostPrice bounds a price, in USD per million tokens.
const mostPrice = 100_000

func (c Config) validatePrices() error {
	for _, model := range slices.Sorted(maps.Keys(c.Prices)) {
		p := c.Prices[model]
		if p.Input == nil || p.Output == nil {
			return bad(join("prices", model), "both input and output are needed; what costs nothing is 0, as is the output of "+
				"a model of embeddings")
		}
		for _, amount := range []*float64{p.Input, p.CachedInput, p.CacheWrite, p.Output} {
			if amount != nil && !(*amount >= 0 && *amount <= mostPrice) {
				return when(true, join("prices", model), "a price is a number of USD per million tokens from 0 to %d, not %v",
					mostPrice, *amount)
			}
		}
	}
	return nil
}

// OwnPrices are those that stand over the built-in ones.
func (c Config) OwnPrices() map[string]price.Price {
	micros := func(usd float64) price.USD { return price.USD(math.Round(usd * access.MicrosPerUSD)) }
	optional := func(usd *float64) *price.USD {
		if usd == nil {
			return nil
		}
		amount := micros(*usd)
		return &amount
	}
	out := map[string]price.Price{}
	for model, p := range c.Prices {
		out[model] = price.Price{Input: micros(*p.Input), CachedInput: optional(p.CachedInput),
			CacheWrite: optional(p.CacheWrite), Output: micros(*p.Output)}
	}
	return out
}

// NeedsPrices says whether a tenant or the users have a budget in USD, so that models without a price are refused.
func (c Config) NeedsPrices() bool {
	all := append(slices.Collect(maps.Values(c.Limits.Tenants)), c.Limits.Users)
	return c.Budgets.Unpriced == string(limit.Refuse) && slices.ContainsFunc(all, func(l Limit) bool {
		return slices.ContainsFunc(l.parsed().Budget, func(b access.Budget) bool { return b.Of == access.USD })
	})
}

// validateUnpriced refuses budgets in USD before models that have no price, which would not count in them.
func (c Config) validateUnpriced(gatewayAlone bool) error {
	if !c.NeedsPrices() {
		return nil
	}
	missing := c.Unpriced(gatewayAlone)
	return when(len(missing) > 0, "prices", "limits has a budget in USD, and there is no price of %s; write what it costs "+
		"into prices, or set budgets.unpriced: allow, with which it costs nothing", strings.Join(missing, ", "))
}

// Unpriced are the models of the configuration that are refused to whoever has a budget in USD, each with its backend. A
// gateway alone does not know the agents that call it.
func (c Config) Unpriced(gatewayAlone bool) (missing []string) {
	table, err := price.New(c.OwnPrices())
	if err != nil || c.Budgets.Unpriced == string(limit.Allow) {
		return nil
	}
	for name, b := range sorted(c.Proxy.Backends) {
		models, asked := slices.Sorted(maps.Values(b.ModelMap)), b.Models
		if !gatewayAlone {
			asked = slices.Concat(asked, c.ModelsOf(name))
		}
		for _, model := range asked {
			models = append(models, proxy.MapModel(b.ModelMap, model))
		}
		for _, model := range models {
			text := fmt.Sprintf("%s (backend %s)", model, name)
			if _, ok := table.At(b.BaseURL, model); !ok && b.Kind != KindOffline && !slices.Contains(missing, text) {
				missing = append(missing, text)
			}
		}
	}
	return missing
}

func (c *Config) tenantVars() named {
	return named{
		prefix: "MNEME_LIMITS_TENANTS_", what: "a tenant's limits", fields: reflect.TypeFor[Limit](),
		find: func(id, _ string) (string, any, func()) {
			name := strings.ToLower(id)
			for existing := range c.Limits.Tenants {
				if envName(existing) == envRoot+id {
					name = existing
				}
			}
			l := c.Limits.Tenants[name]
			return join("limits.tenants", name), &l, func() { put(&c.Limits.Tenants, name, l) }
		},
	}
}

// priceVars: the name of a model cannot be told from a variable's, so that one must be in the file.
func (c *Config) priceVars() named {
	return named{
		prefix: "MNEME_PRICES_", what: "a price", fields: reflect.TypeFor[Price](), missing: "there is no price of %q",
		find: func(id, _ string) (string, any, func()) {
			for model, p := range c.Prices {
				if envName(model) == envRoot+id {
					return join("prices", model), &p, func() { c.Prices[model] = p }
				}
			}
			return "", nil, nil
		},
	}
}
