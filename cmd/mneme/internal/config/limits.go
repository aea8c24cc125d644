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
	// of each tenant that Tenants does not name, but for the default one
	EachOtherTenant Limit `yaml:"each_other_tenant" envPrefix:"EACH_OTHER_TENANT_"`
	Users           Limit `yaml:"users" envPrefix:"USERS_"`
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
func (l Limits) Any() bool {
	return len(l.Tenants) > 0 || l.Users != Limit{} || l.EachOtherTenant != Limit{}
}

// ForTenants are the limits of tenants by their names.
func (l Limits) ForTenants() map[string]access.Limits {
	out := map[string]access.Limits{}
	for name, one := range l.Tenants {
		out[name] = one.parsed()
	}
	return out
}

// ForEachOther are the limits of each tenant without its own.
func (l Limits) ForEachOther() access.Limits { return l.EachOtherTenant.parsed() }

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
	return cmp.Or(l.EachOtherTenant.validate("limits.each_other_tenant"), l.Users.validate("limits.users"))
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

// BoundsMoney says whether a tenant or the users have a budget in USD.
func (l Limits) BoundsMoney() bool {
	return slices.ContainsFunc(append(slices.Collect(maps.Values(l.Tenants)), l.Users), func(one Limit) bool {
		return slices.ContainsFunc(one.parsed().Budget, func(b access.Budget) bool { return b.Of == access.USD })
	})
}

// Priced says whether a model at an address may be called where a budget in USD holds: it has a price, or needs none.
func (c Config) Priced(address, model string) bool {
	table, _ := price.New(c.OwnPrices()) // the built-in ones can be read
	_, ok := table.At(price.Local(address), model)
	return ok || c.Budgets.Unpriced == string(limit.Allow)
}

// RequirePrices says which models of the configuration are refused where a budget in USD holds. A gateway alone does not
// know the agents that call it.
func (c Config) RequirePrices(gatewayAlone bool) error {
	var missing []string
	for name, b := range sorted(c.Proxy.Backends) {
		models := slices.Collect(maps.Values(b.ModelMap))
		if !gatewayAlone {
			for _, model := range c.ModelsOf(name) {
				models = append(models, proxy.MapModel(b.ModelMap, model))
			}
		}
		slices.Sort(models)
		for _, model := range slices.Compact(models) {
			if b.Kind != KindOffline && !c.Priced(b.BaseURL, model) {
				missing = append(missing, fmt.Sprintf("%s (backend %s)", model, name))
			}
		}
	}
	return when(len(missing) > 0, "prices", "a budget in USD needs a price of each model, and there is none of %s; write "+
		"what it costs here, or set budgets.unpriced: allow, with which it costs nothing", strings.Join(missing, ", "))
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
