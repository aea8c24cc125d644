package price_test

import (
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/price"
)

func TestPrices(t *testing.T) {
	table, err := price.New(nil)
	require.NoError(t, err)
	for _, tt := range []struct {
		model  string
		tokens price.Tokens
		want   int64
	}{
		{"gpt-4o", price.Tokens{Input: 1_000_000, Output: 1_000_000}, 12_500_000},
		{"gpt-4o-2024-08-06", price.Tokens{CachedInput: 1_000_000}, 1_250_000},
		{"claude-opus-4-20250514", price.Tokens{Input: 10, CachedInput: 100, CacheWrite: 4, Output: 2}, 150 + 150 + 75 + 150},
		{"deepseek-chat", price.Tokens{Input: 1_000_000, CachedInput: 1_000_000, Output: 1_000_000}, 728_000},
		{"gpt-5.1", price.Tokens{Input: 1_000_000, Output: 1_000_000}, 11_250_000},
		{"gpt-5-nano", price.Tokens{Input: 1}, 1}, // a twentieth of a millionth, rounded up
		{"gpt-5-nano", price.Tokens{}, 0},
		{"gpt-4o-mini", price.Tokens{CacheWrite: 1_000_000}, 150_000}, // it has no price of its own
		{"gpt-4o", price.Tokens{Input: -5, Output: access.Most}, access.Most * 10},
		{"gpt-5.5", price.Tokens{Input: 272_000, Output: 1_000}, 1_360_000 + 30_000},
		{"gpt-5.5", price.Tokens{Input: 1, CachedInput: 272_000, Output: 1_000}, 10 + 272_000 + 45_000},
	} {
		p, ok := table.Lookup(tt.model)
		require.True(t, ok, tt.model)
		require.Equal(t, tt.want, p.Cost(tt.tokens), "%s %+v", tt.model, tt.tokens)
	}
	p, _ := table.Lookup("claude-opus-4-5")
	require.Equal(t, int64(6_250_000+25_000_000), p.Most(1_000_000, 1_000_000))
	for _, unknown := range []string{"", "gpt-4o-audio", "offline", "gpt-4o-2024"} {
		_, ok := table.Lookup(unknown)
		require.False(t, ok, unknown)
	}
	p, _ = table.Lookup("gpt-5.5")
	require.Equal(t, int64(3_000_000+45), p.Most(300_000, 1))
	for _, none := range []*price.Table{nil, table} {
		for at, free := range map[string]bool{"http://127.0.0.1:1234/v1": none != nil, "http://[::1]/v1": none != nil,
			"http://localhost:11434": none != nil, "https://v.example": false, "http://localhost.example": false, "": false} {
			p, ok := none.LookupAt(price.Local(at), "odd")
			require.Equal(t, free, ok, at)
			require.Zero(t, p)
		}
	}
	p, _ = table.LookupAt(true, "gpt-4o")
	require.NotZero(t, p, "what has a price has it everywhere")
	_, ok := (*price.Table)(nil).Lookup("gpt-4o")
	require.False(t, ok)
}

func TestOwnPrices(t *testing.T) {
	var own map[string]price.Price
	require.NoError(t, yaml.Unmarshal([]byte("gpt-4o: {input: 1, output: 2.50}\nmine: {input: 0.005, output: 0}"), &own))
	table, err := price.New(own)
	require.NoError(t, err)
	p, _ := table.Lookup("gpt-4o")
	require.Equal(t, int64(1_000_000+2_500_000), p.Cost(price.Tokens{CachedInput: 1_000_000, Output: 1_000_000}))
	p, _ = table.Lookup("mine")
	require.Equal(t, int64(5_000), p.Cost(price.Tokens{Input: 1_000_000}))
	for _, wrong := range []string{"-1", "0.0000001", "much", "100001"} {
		require.Error(t, yaml.Unmarshal([]byte("m: {input: "+wrong+", output: 1}"), &own), wrong)
	}
}
