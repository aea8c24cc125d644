package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"mneme/access"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/proxy"
)

// Limits bound what tenants and users may use of models. What a key may use is said where the key is made.
type Limits struct {
	Tenants map[string]Limit `yaml:"tenants" check:"keys=tenant"` // by name
	// of each tenant that Tenants does not name, but for the default one
	EachOtherTenant Limit `yaml:"each_other_tenant"`
	Users           Use   `yaml:"users"`
}

// Use is what a user may use of models. Empty fields limit nothing.
type Use struct {
	Rate   string `yaml:"rate"`   // see access.ParseRates
	Budget string `yaml:"budget"` // see access.ParseBudgets
}

// Limit is what a tenant may use and store. Empty fields limit nothing.
type Limit struct {
	Rate   string `yaml:"rate"`
	Budget string `yaml:"budget"`
	Stored string `yaml:"stored"` // see access.ParseSize
}

// Budgets are how limits are kept.
type Budgets struct {
	WhenAway string `yaml:"when_away" default:"refuse" check:"oneof=refuse allow"`
	// with allow: of one process in one outage
	AwayCalls int           `yaml:"away_calls" default:"100" check:"positive"`
	Lease     time.Duration `yaml:"lease" default:"10m" check:"positive"` // of a reservation
	Unclosed  string        `yaml:"unclosed" default:"estimate" check:"oneof=estimate release"`
	// bounds an answer without a bound of its own
	AnswerTokens int    `yaml:"answer_tokens" default:"4096" check:"positive"`
	Unpriced     string `yaml:"unpriced" default:"refuse" check:"oneof=refuse allow"` // where money is bounded
}

// Usage is how calls of models are counted.
type Usage struct {
	Keep time.Duration `yaml:"keep" default:"9600h" check:"range=24h..87840h"` // of the counters of a day
}

// Price is what a model costs, in USD per million tokens.
type Price struct {
	Input       *float64 `yaml:"input" check:"range=0..100000"`
	CachedInput *float64 `yaml:"cached_input,omitempty" check:"range=0..100000"` // left out: as Input
	CacheWrite  *float64 `yaml:"cache_write,omitempty" check:"range=0..100000"`  // left out: as Input
	Output      *float64 `yaml:"output" check:"range=0..100000"`
}

// Any says whether anything is bounded.
func (l Limits) Any() bool {
	return len(l.Tenants) > 0 || l.Users != Use{} || l.EachOtherTenant != Limit{}
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

// parsed reads texts that check has read already.
func (u Use) parsed() (out access.Limits) {
	out.Rate, _ = access.ParseRates(u.Rate)
	out.Budget, _ = access.ParseBudgets(u.Budget)
	return out
}

func (u Use) check(key string, _ Config) error {
	_, rate := access.ParseRates(u.Rate)
	_, budget := access.ParseBudgets(u.Budget)
	return cmp.Or(when(rate != nil, key+".rate", "%v", rate), when(budget != nil, key+".budget", "%v", budget))
}

func (l Limit) use() Use { return Use{l.Rate, l.Budget} }

func (l Limit) parsed() access.Limits {
	out := l.use().parsed()
	out.Stored, _ = access.ParseSize(l.Stored)
	return out
}

func (l Limit) check(key string, c Config) error {
	_, stored := access.ParseSize(l.Stored)
	return cmp.Or(l.use().check(key, c), when(stored != nil, key+".stored", "%v", stored))
}

func (p Price) check(key string, _ Config) error {
	return when(p.Input == nil || p.Output == nil, key, "both input and output are needed, in USD per million tokens; "+
		"what costs nothing is 0, as is the output of a model of embeddings")
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

// boundsMoney reports whether a tenant or the users have a budget in USD.
func (l Limits) boundsMoney() bool {
	budgets := l.ForUsers().Budget
	for _, one := range l.ForTenants() {
		budgets = append(budgets, one.Budget...)
	}
	return slices.ContainsFunc(budgets, func(b access.Budget) bool { return b.Unit == access.USD })
}

// priced reports whether a model at an address may be called under a budget in USD: it has a price, or needs none.
func (c Config) priced(address, model string) bool {
	table, _ := price.New(c.OwnPrices()) // the built-in ones can be read
	_, ok := table.LookupAt(price.Local(address), model)
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
			if b.Kind != KindOffline && !c.priced(b.BaseURL, model) {
				missing = append(missing, fmt.Sprintf("%s (backend %s)", model, name))
			}
		}
	}
	return when(len(missing) > 0, "prices", "a budget in USD needs a price of each model, and there is none of %s; write "+
		"what it costs here, or set budgets.unpriced: allow, with which it costs nothing", strings.Join(missing, ", "))
}
