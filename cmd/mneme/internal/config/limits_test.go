package config

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/price"
)

func TestLimits(t *testing.T) {
	c, err := load(t, `
limits:
  tenants: {acme: {rate: "600/m,8atonce", budget: 20usd/month, stored: 20GB}, shop: {rate: 1/s}}
  each_other_tenant: {stored: 500MB}
  users: {budget: 0.50usd/day}
prices: {my-model: {input: 0.4, cached_input: 0, output: 1.6}}
`, "MNEME_PRICES={my-model: {input: 0.4, cached_input: 0.1, output: 2}}")
	require.NoError(t, err)
	require.True(t, c.Limits.Any())
	require.Equal(t, "600/m,8atonce", c.Limits.ForTenants()["acme"].Rate.String())
	require.Equal(t, "20usd/month", c.Limits.ForTenants()["acme"].Budget.String())
	require.EqualValues(t, 20_000_000_000, c.Limits.ForTenants()["acme"].Stored)
	require.EqualValues(t, 500_000_000, c.Limits.ForEachOther().Stored)
	require.Equal(t, "1/s", c.Limits.ForTenants()["shop"].Rate.String())
	require.Equal(t, access.Budgets{{N: 500_000, Unit: access.USD, Period: access.Day}}, c.Limits.ForUsers().Budget)
	cached := price.USD(100_000)
	require.Equal(t, map[string]price.Price{"my-model": {Input: 400_000, CachedInput: &cached, Output: 2_000_000}},
		c.OwnPrices())
	text, err := c.YAML()
	require.NoError(t, err)
	require.Contains(t, string(text), "my-model:")

	for text, says := range map[string]string{
		"limits: {tenants: {acme: {rate: 600}}}":                 "limits.tenants.acme.rate",
		"limits: {tenants: {ACME: {rate: 600/m}}}":               "a tenant is 1 to 32",
		"limits: {users: {budget: 20eur/month}}":                 "limits.users.budget",
		"limits: {tenants: {acme: {stored: 5GiB}}}":              "a size is a whole number of KB, MB, GB or TB, such as 500MB, not",
		"limits: {tenants: {acme: {stored: 20}}}":                "limits.tenants.acme.stored",
		"limits: {tenants: {acme: {stored: 0GB}}}":               "limits.tenants.acme.stored",
		"limits: {tenants: {acme: {stored: 1001TB}}}":            "limits.tenants.acme.stored",
		"limits: {each_other_tenant: {stored: -1GB}}":            "limits.each_other_tenant.stored",
		"limits: {users: {stored: 5GB}}":                         "stored",
		"limits: {users: {budget: '1usd/day,2usd/day'}}":         "keep one",
		"budgets: {when_away: maybe}":                            "budgets.when_away",
		"budgets: {lease: 0s}":                                   "budgets.lease",
		"budgets: {away_calls: -1}":                              "budgets.away_calls",
		"usage: {keep: 23h}":                                     "usage.keep",
		"usage: {keep: 0s}":                                      "usage.keep",
		"usage: {keep: 90000h}":                                  "usage.keep",
		"budgets: {unclosed: free}":                              "budgets.unclosed",
		"prices: {m: {input: -1, output: 1}}":                    "prices.m",
		"prices: {m: {input: 1, output: 1, cached_input: .nan}}": "prices.m",
		"prices: {gpt-4.1: {input: 1}}":                          "both input and output are needed",
		"prices: {gpt-4.1: {output: 1}}":                         "both input and output are needed",
		"budgets: {unpriced: free}":                              "budgets.unpriced",
	} {
		_, err := load(t, text)
		require.ErrorContains(t, err, says, text)
	}
}

// A budget in USD does not hold for a model without a price, so that the two do not go together unless the operator
// says so.
func TestABudgetInUSDNeedsPrices(t *testing.T) {
	const (
		backend = "proxy: {backends: {v: {kind: openai, base_url: 'https://v.example/v1', model_map: {'*': MODEL}}}}\n"
		users   = "limits: {users: {budget: 1usd/day}}\n"
		tenants = "limits: {tenants: {acme: {budget: '1000tokens/day,1usd/day'}}}\n"
		says    = "there is none of odd-1 (backend v)"
		all     = "analytic (backend v), knowledge (backend v), master (backend v), odd-1 (backend v)"
	)
	odd := strings.Replace(backend, "MODEL", "odd-1", 1)
	for text, says := range map[string]string{
		odd + users:   says,
		odd + tenants: says,
		odd + "limits: {users: {budget: 1000tokens/day}}\n":                            "",
		odd + users + "budgets: {unpriced: allow}\n":                                   "",
		odd + users + "prices: {odd-1: {input: 1, output: 2}}\n":                       "",
		strings.Replace(backend, "MODEL", "gpt-4.1", 1) + users:                        "",
		strings.Replace(odd, "'*'", "other", 1) + users:                                all,
		strings.Replace(odd, "https://v.example", "http://127.0.0.1:1234", 1) + users:  "",
		strings.Replace(odd, "https://v.example", "http://[::1]:1234", 1) + users:      "",
		strings.Replace(odd, "https://v.example", "http://localhost:11434", 1) + users: "",
		users: "", // the offline model
	} {
		_, err := load(t, text)
		if says == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, says, text)
	}
	mapped := strings.Replace(odd, "'*': odd-1", "gpt: gpt-4.1", 1) + users
	require.NoError(t, os.WriteFile(DefaultFile, []byte(mapped), 0o600))
	_, err := LoadGateway("", nil)
	require.NoError(t, err, "a gateway alone does not know who calls it")
}
