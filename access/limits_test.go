package access_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/access"
)

func TestLimitsAreReadAndWrittenAlike(t *testing.T) {
	for text, want := range map[string]access.Rates{
		"":                           nil,
		"60/m":                       {{N: 60, Unit: access.Requests, Per: time.Minute}},
		"2runs,8atonce":              {{N: 2, Unit: access.Runs}, {N: 8, Unit: access.AtOnce}},
		"5/s,100000tokens/m,8atonce": {{5, access.Requests, time.Second}, {100_000, access.Tokens, time.Minute}, {N: 8, Unit: access.AtOnce}},
		"1000/h,20/d":                {{1000, access.Requests, time.Hour}, {20, access.Requests, 24 * time.Hour}},
		"1000000000000tokens/d,1/s":  {{access.Most, access.Tokens, 24 * time.Hour}, {1, access.Requests, time.Second}},
		"1atonce,1/s,1/m,1tokens/s":  {{N: 1, Unit: access.AtOnce}, {1, access.Requests, time.Second}, {1, access.Requests, time.Minute}, {1, access.Tokens, time.Second}},
	} {
		got, err := access.ParseRates(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.Equal(t, text, got.String())
	}
	for text, want := range map[string]access.Budgets{
		"":                                nil,
		"5000000tokens/month":             {{5_000_000, access.Tokens, access.Month}},
		"20usd/month,0.5usd/day":          {{20_000_000, access.USD, access.Month}, {500_000, access.USD, access.Day}},
		"0.000001usd/total,7tokens/total": {{1, access.USD, access.Total}, {7, access.Tokens, access.Total}},
	} {
		got, err := access.ParseBudgets(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.Equal(t, text, got.String())
	}
	both := access.Limits{Rate: access.Rates{{N: 8, Unit: access.AtOnce}},
		Budget: access.Budgets{{500_000, access.USD, access.Day}}}
	text, err := json.Marshal(both)
	require.NoError(t, err)
	require.JSONEq(t, `{"rate": "8atonce", "budget": "0.5usd/day"}`, string(text))
	var back access.Limits
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, both, back)
}

func TestWhatIsNoLimitIsRefused(t *testing.T) {
	for _, text := range []string{
		"60", "/m", "60/", "60/week", "-1/m", "+1/m", "0/m", "1.5/m", "tokens/m", "60 /m", "1000000000001/m", "5usd/m", "atonce",
		"8atonce/m", "runs", "0runs", "4runs/m", "4runs,2runs", "60/m,", ",", "60/m,30/m", "99999999999999999999/m", "60/m\x00",
	} {
		_, err := access.ParseRates(text)
		require.ErrorIs(t, err, access.ErrBadLimit, "%q", text)
	}
	for _, text := range []string{
		"20usd", "20/month", "usd/month", ".5usd/month", "5.usd/month", "0.0000001usd/day", "0usd/day", "-1usd/day", "1e3usd/day",
		"5tokens/m", "-5tokens/day", "5tokens/year", "1.5tokens/day", "20eur/month", "20usd/month,30usd/month", "1000001usd/day", "20usd /day",
	} {
		_, err := access.ParseBudgets(text)
		require.ErrorIs(t, err, access.ErrBadLimit, "%q", text)
	}
}
