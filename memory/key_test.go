package memory_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
)

var (
	anyChat = rapid.Custom(func(t *rapid.T) memory.Chat {
		tenant, err := memory.ParseTenant(rapid.StringMatching(`[a-z0-9-]{0,32}`).Draw(t, "tenant"))
		if err != nil {
			t.Fatal(err)
		}
		chat, err := tenant.Chat(rapid.StringMatching(`[A-Za-z0-9._:@+=-]{1,128}`).Draw(t, "id"))
		if err != nil {
			t.Fatal(err)
		}
		return chat
	})
	anyAgent = rapid.Map(rapid.StringMatching(`[a-z0-9_-]{1,64}`), func(s string) memory.Agent { return memory.Agent(s) })
)

func TestParseKey(t *testing.T) {
	for _, c := range []struct {
		redis string
		want  memory.Key
	}{
		{"chat_history:12345", memory.ChatKey(memory.MustChat("12345"))},
		{"chat_history:-100123", memory.ChatKey(memory.MustChat("-100123"))},
		{"chat_history:subagent:analytic:1", memory.ChatKey(memory.MustChat("subagent:analytic:1"))},
		{"subagent:analytic:12345", memory.SubagentKey("analytic", memory.MustChat("12345"))},
		{"subagent:analytic:x:1", memory.SubagentKey("analytic", memory.MustChat("x:1"))},
		{"subagent:subagent::", memory.SubagentKey("subagent", memory.MustChat(":"))},
		{"subagent:a_b-9:A.b_c:@+=-", memory.SubagentKey("a_b-9", memory.MustChat("A.b_c:@+=-"))},
	} {
		key, ok := memory.ParseKey(c.redis)
		require.True(t, ok, c.redis)
		require.Equal(t, c.want, key)
		require.Equal(t, c.redis, key.String())
	}
	for _, foreign := range []string{
		"", ":", "chat_history", "chat_history:", "subagent", "subagent:", "subagent:analytic", "subagent:analytic:",
		"subagent::1",
		"subagent:Analytic:1", "subagent:an alytic:1", "subagent:" + strings.Repeat("a", 65) + ":1",
		"chat_history:a b", "chat_history:чат", "chat_history:A/b", "chat_history:a/b/c", "chat_history:/b", "chat_history:a/",
		"chat_history:default/b", "chat_history:a\n", "chat_history:" +
			strings.Repeat("a", 129),
		"Chat_history:1", "turns:open", "events:1:2", "{chat_history:1}:meta", "{subagent:analytic:1}:meta",
	} {
		_, ok := memory.ParseKey(foreign)
		require.False(t, ok, foreign)
	}
}

func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chat, agent := anyChat.Draw(t, "chat"), anyAgent.Draw(t, "agent")
		for _, key := range []memory.Key{memory.ChatKey(chat), memory.SubagentKey(agent, chat)} {
			back, ok := memory.ParseKey(key.String())
			require.True(t, ok)
			require.Equal(t, key, back)
			require.Equal(t, chat, key.Chat())
		}
		require.Equal(t, agent, memory.SubagentKey(agent, chat).Agent())
		require.Empty(t, memory.ChatKey(chat).Agent())
		other, otherAgent := anyChat.Draw(t, "other chat"), anyAgent.Draw(t, "other agent")
		require.Equal(t, chat == other && agent == otherAgent,
			memory.SubagentKey(agent, chat).String() == memory.SubagentKey(otherAgent, other).String(),
			"different histories have different keys")
	})
}

func TestParseNames(t *testing.T) {
	for _, good := range []string{"1", "-", "a.b_c:d@e+f=g-h", strings.Repeat("x", 128)} {
		chat, err := memory.Tenant{}.Chat(good)
		require.NoError(t, err)
		require.Equal(t, memory.MustChat(good), chat)
	}
	for _, bad := range []string{"", " ", "a b", "a/b", "a\x00", "ё", "a,b", "{a}", "a*", strings.Repeat("x", 129)} {
		for _, tenant := range []string{"", "acme"} {
			tenant, err := memory.ParseTenant(tenant)
			require.NoError(t, err)
			_, err = tenant.Chat(bad)
			require.ErrorIs(t, err, memory.ErrBadName, bad)
			require.ErrorContains(t, err, "1 to 128 characters")
		}
	}
	for _, good := range []string{"a", "analytic", "a-b_9", strings.Repeat("x", 64)} {
		agent, err := memory.ParseAgent(good)
		require.NoError(t, err)
		require.Equal(t, memory.Agent(good), agent)
	}
	for _, bad := range []string{"", "A", "a.b", "a:b", "a b", "ж", strings.Repeat("x", 65)} {
		_, err := memory.ParseAgent(bad)
		require.ErrorIs(t, err, memory.ErrBadName, bad)
	}
	for _, good := range []string{"a", "acme-2", strings.Repeat("x", 32)} {
		tenant, err := memory.ParseTenant(good)
		require.NoError(t, err)
		require.Equal(t, good, tenant.String())
	}
	for _, bad := range []string{"A", "a.b", "a/b", "a:b", "a_b", "*", strings.Repeat("x", 33)} {
		_, err := memory.ParseTenant(bad)
		require.ErrorIs(t, err, memory.ErrBadName, bad)
	}
	for _, same := range []string{"", "default"} {
		tenant, err := memory.ParseTenant(same)
		require.NoError(t, err)
		require.Equal(t, memory.Tenant{}, tenant, "there is one default tenant, by two names")
	}
	_, err := memory.ParseChat(strings.Repeat(" ", 1<<20))
	require.Less(t, len(err.Error()), 400, "an error does not repeat a megabyte of input")
}

func TestChatFromJSON(t *testing.T) {
	for text, want := range map[string]memory.Chat{
		`"12345"`:                 memory.MustChat("12345"),
		`12345`:                   memory.MustChat("12345"),
		`-100123`:                 memory.MustChat("-100123"),
		`0`:                       memory.MustChat("0"),
		`123456789012345678901`:   memory.MustChat("123456789012345678901"),
		`"a\u0062c"`:              memory.MustChat("abc"),
		`"1e3"`:                   memory.MustChat("1e3"),
		`"-"`:                     memory.MustChat("-"),
		strings.Repeat("9", 128):  memory.MustChat(strings.Repeat("9", 128)),
		`"x:1"`:                   memory.MustChat("x:1"),
		` "user@example.com+1=a"`: memory.MustChat("user@example.com+1=a"),
	} {
		var chat memory.Chat
		require.NoError(t, json.Unmarshal([]byte(text), &chat), text)
		require.Equal(t, want, chat)
	}
	for _, text := range []string{`1e3`, `1E3`, `1.0`, `-1.5`, `""`, `null`, `true`, `[]`, `{}`, `["1"]`, `"a b"`,
		`"\u0000"`, strings.Repeat("9", 129)} {
		var body struct {
			Chat memory.Chat `json:"chat_id"`
		}
		err := json.Unmarshal([]byte(`{"chat_id":`+text+`}`), &body)
		require.ErrorIs(t, err, memory.ErrBadName, text)
		require.Empty(t, body.Chat)
	}
}

// redisKeys are keys of every kind of one chat and one agent, as they stand in Redis.
func redisKeys(chat memory.Chat, agent memory.Agent) map[string]memory.RedisKey {
	own, subagent, run := memory.ChatKey(chat), memory.SubagentKey(agent, chat), "MFRGGZDFMZTWQ2LKNNWG23TPOB"
	id, name := chat.String(), string(agent)
	return map[string]memory.RedisKey{
		"chat_history:" + id:                           {Kind: memory.KindHistory, Key: own},
		"subagent:" + name + ":" + id:                  {Kind: memory.KindHistory, Key: subagent},
		"{chat_history:" + id + "}:meta":               {Kind: memory.KindMeta, Key: own},
		"{subagent:" + name + ":" + id + "}:meta":      {Kind: memory.KindMeta, Key: subagent},
		"{chat_history:" + id + "}:archive":            {Kind: memory.KindArchive, Key: own},
		"{subagent:" + name + ":" + id + "}:notes":     {Kind: memory.KindNotes, Key: subagent},
		"{chat_history:" + id + "}:turn":               {Kind: memory.KindLease, Key: own},
		"{chat_history:" + id + "}:first":              {Kind: memory.KindFirst, Key: own},
		"{chat_history:" + id + "}:rewound:12":         {Kind: memory.KindRewound, Key: own, Run: "12"},
		"{chat_history:" + id + "}:waiting":            {Kind: memory.KindWaiting, Key: own},
		"{chat_history:" + id + "}:calls:" + run:       {Kind: memory.KindCalls, Key: own, Run: run},
		"{chat_history:" + id + "}:damaged:1":          {Kind: memory.KindHistory, Key: own, DamagedAt: "1"},
		"{subagent:" + name + ":" + id + "}:damaged:1": {Kind: memory.KindHistory, Key: subagent, DamagedAt: "1"},
		"events:" + id + ":" + run:                     {Kind: memory.KindEvents, Key: own, Run: run},
		"{events:" + id + ":" + run + "}:damaged:1":    {Kind: memory.KindEvents, Key: own, Run: run, DamagedAt: "1"},
		"run:" + id + ":" + run:                        {Kind: memory.KindRecord, Key: own, Run: run},
		"turns:open":                                   {Kind: memory.KindOpenRuns},
		"{turns:open}:damaged:1":                       {Kind: memory.KindOpenRuns, DamagedAt: "1"},
		"mneme:waiting":                                {Kind: memory.KindWaits},
		"mneme:chats":                                  {Kind: memory.KindChats},
		"mneme:waiting:acme":                           {Kind: memory.KindWaits, Run: "acme"},
		"mneme:audit":                                  {Kind: memory.KindAudit},
		"mneme:stored":                                 {Kind: memory.KindStored},
		"mneme:stored:acme":                            {Kind: memory.KindStored, Run: "acme"},
		"mneme:chats:acme":                             {Kind: memory.KindChats, Run: "acme"},
		"mneme:chats#019988":                           {Kind: memory.KindChats, Shard: 17},
		"mneme:chats:acme#004387":                      {Kind: memory.KindChats, Run: "acme", Shard: 16384},
		"{mneme:chats:acme#004387}:damaged:1":          {Kind: memory.KindChats, Run: "acme", Shard: 16384, DamagedAt: "1"},
		"mneme:users:acme":                             {Kind: memory.KindUsers, Run: "acme"},
		"mneme:tenants":                                {Kind: memory.KindTenants},
		"mneme:erasing":                                {Kind: memory.KindErasing},
		"mneme:erasures":                               {Kind: memory.KindErasures},
		"mneme:epoch":                                  {Kind: memory.KindEpoch},
		"mneme:processes":                              {Kind: memory.KindProcesses},
		"mneme:tools:crm":                              {Kind: memory.KindTools, Run: "crm"},
		"user_notes:" + id:                             {Kind: memory.KindUserNotes, Run: id},
		"{user_notes:" + id + "}:damaged:1":            {Kind: memory.KindUserNotes, Run: id, DamagedAt: "1"},
		"mneme:user-chats:" + id:                       {Kind: memory.KindUserChats, Run: id},
		"mneme:user-zone:acme/ann":                     {Kind: memory.KindUserZone, Run: "acme/ann"},
		"mneme:user-chats:acme/ann":                    {Kind: memory.KindUserChats, Run: "acme/ann"},
		"{mneme:tools:crm}:damaged:1":                  {Kind: memory.KindTools, Run: "crm", DamagedAt: "1"},
	}
}

func TestRedisKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for text, key := range redisKeys(anyChat.Draw(t, "chat"), anyAgent.Draw(t, "agent")) {
			require.Equal(t, text, key.String())
			back, ok := memory.ParseRedisKey(text)
			require.True(t, ok, text)
			require.Equal(t, key, back)
		}
	})
	meta := memory.RedisKey{Kind: memory.KindMeta, Key: memory.ChatKey(memory.MustChat("1")), DamagedAt: "2"}
	require.Equal(t, "{chat_history:1}:damaged:2", meta.String(), "what lies beside a history stays in its slot")
	for _, foreign := range []string{"", ":", "history", "meta", "turns", "turns:", "mneme:other", "mneme:tools", "mneme:tools:", "mneme:chats:", "mneme:chats:A", "mneme:chats:default",
		"mneme:chats#", "mneme:chats#0", "mneme:chats#999999", "mneme:chats#+19988", "mneme:chats:#019988", "mneme:chats:A#019988",
		"mneme:chats#019988:acme", "mneme:chats#019988#000524", "mneme:waiting#011000", "mneme:chats:default#000524", "user_notes", "user_notes:", "user_notes:A/b",
		"user_notes:default/b", "mneme:user-chats", "mneme:user-chats:a b",
		"events", "events:",
		"events:1", "run:a b:R", "{chat_history:1}", "{chat_history:1}:", "{chat_history:1}:other",
		"{chat_history:1}:damaged:", "{other}:damaged:1", "{chat_history:1}:meta:1", "{chat_history:1}:meta:", "{chat_history:1}:rewound",
		"{chat_history:1}:rewound:", "{chat_history:1}:waiting:1", "{chat_history:1}:calls", "proxy:turns:born"} {
		key, ok := memory.ParseRedisKey(foreign)
		require.False(t, ok, foreign)
		require.Zero(t, key)
	}
}

// The shards of a list are in as many slots, and evenly: half of them in each half, and so on; that is what Redis says
// of their keys, too.
func TestShardsLieEvenlyOverTheSlots(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	client := redistest.StartCluster(t).Nodes[0].Client()
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	for _, of := range []memory.Tenant{{}, acme} {
		for _, shards := range []int{2, 64, 4096} {
			parts := map[int64]int{}
			cmds, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for shard := range shards {
					p.ClusterKeySlot(t.Context(), memory.ShardKey(memory.KindChats, of, shard+1))
				}
				return nil
			})
			require.NoError(t, err)
			for _, cmd := range cmds {
				parts[cmd.(*redis.IntCmd).Val()*int64(shards)/memory.MaxShards]++
			}
			require.Len(t, parts, shards)
		}
	}
	keys := map[string]bool{}
	for shard := range memory.MaxShards {
		key := memory.ShardKey(memory.KindChats, acme, shard+1)
		back, ok := memory.ParseRedisKey(key)
		require.True(t, ok)
		require.Equal(t, memory.RedisKey{Kind: memory.KindChats, Run: "acme", Shard: shard + 1}, back)
		keys[key] = true
	}
	require.Len(t, keys, memory.MaxShards)
}

// The keys are made in one place. The sources are read, so that the test sees them change.
func TestNobodyElseMakesKeys(t *testing.T) {
	made := regexp.MustCompile(`"\{?(chat_history|subagent|events|run|turns|mneme|user_notes):|"\}:(meta|turn|first|rewound|waiting|calls|damaged)`)
	for _, root := range []string{".", "../webmemory", "../apiserver", "../master", "../cmd"} {
		require.NoError(t, filepath.WalkDir(root, func(name string, file fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
				name == "rediskey.go" {
				return err
			}
			text, err := os.ReadFile(name)
			for line := range strings.Lines(string(text)) {
				if made.MatchString(line) && !strings.Contains(line, "mneme: ") && !strings.Contains(line, "//") {
					t.Errorf("%s makes a key by itself: %s", name, line)
				}
			}
			return err
		}))
	}
}
