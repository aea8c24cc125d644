package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/proxy/copilot/chat"
	"mneme/proxy/redisstore"
)

func TestOwnersOfSessions(t *testing.T) {
	testtier.Slow(t)
	for name, client := range map[string]func() redis.UniversalClient{
		"redis":   func() redis.UniversalClient { return redistest.Start(t).Client() },
		"cluster": func() redis.UniversalClient { return redistest.StartCluster(t).Client() },
	} {
		t.Run(name, func(t *testing.T) {
			client := client()
			owners := redisstore.NewOwners(client, time.Hour)
			var scopes []chat.Scope
			for _, conversation := range []string{"a", "b", "c", "d"} {
				scopes = append(scopes, chat.Scope{Tenant: "t", Route: "main", Conversation: conversation})
			}
			got, err := owners.Holders(t.Context(), scopes)
			require.NoError(t, err)
			require.Equal(t, []string{"", "", "", ""}, got)

			require.NoError(t, owners.Claim(t.Context(), scopes[0], "one"))
			require.NoError(t, owners.Claim(t.Context(), scopes[1], "one"))
			require.NoError(t, owners.Claim(t.Context(), scopes[1], "two"))
			other := scopes[2]
			other.Route = "teammate/analytic"
			require.NoError(t, owners.Claim(t.Context(), other, "three"))
			require.NoError(t, client.Set(t.Context(), "proxy:copilot:{t:d}", "somebody else's", 0).Err())
			got, err = owners.Holders(t.Context(), append(scopes, other))
			require.NoError(t, err)
			require.Equal(t, []string{"one", "two", "", "", "three"}, got, "the last one who claimed, by route")
			require.Equal(t, "two", client.HGet(t.Context(), "proxy:copilot:{t:b}", "main").Val(), "readable with redis-cli")
			require.InDelta(t, time.Hour, client.PTTL(t.Context(), "proxy:copilot:{t:b}").Val(), float64(time.Minute))

			require.NoError(t, owners.Disown(t.Context(), "t", "c"))
			got, err = owners.Holders(t.Context(), []chat.Scope{other})
			require.NoError(t, err)
			require.Equal(t, []string{""}, got)
		})
	}
}

func TestOwnersWithoutRedis(t *testing.T) {
	testtier.Slow(t)
	server := redistest.Start(t)
	owners := redisstore.NewOwners(server.Client(), time.Hour)
	server.Kill()
	scope := chat.Scope{Conversation: "a"}
	require.Error(t, owners.Claim(t.Context(), scope, "one"))
	_, err := owners.Holders(t.Context(), []chat.Scope{scope})
	require.Error(t, err, "nobody is not the same as not known")
	require.Error(t, owners.Disown(t.Context(), "", "a"))
}
