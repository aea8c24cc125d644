package backup_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access/limit"
	"mneme/access/tally"
	"mneme/cmd/mneme/internal/backup"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/embedded"
	"mneme/memory/redisstore"
	"mneme/proxy/copilot/chat"
	"mneme/proxy/ledger"
	proxystore "mneme/proxy/redisstore"
	"mneme/subagent/rag/docstore"
)

var ctx = context.Background()

const (
	run     = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	openRun = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func quiet(backup.Summary) {}

// stores are empty stores of every kind: what is saved from one must be restored
// into any other.
func stores(t *testing.T) map[string]redis.UniversalClient {
	cluster := redistest.StartCluster(t)
	sentinel := redistest.StartSentinel(t)
	inside, err := embedded.Open(ctx, embedded.Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inside.Close()) })
	byPipe := redis.NewClient(&redis.Options{Protocol: 2, Addr: "embedded", Dialer: inside.Dial})
	t.Cleanup(func() { _ = byPipe.Close() })
	return map[string]redis.UniversalClient{
		"redis": client(t, redistest.Start(t)), "embedded": byPipe,
		"cluster": redis.NewUniversalClient(&redis.UniversalOptions{
			Protocol: 2, Addrs: []string{cluster.Nodes[0].Addr, cluster.Nodes[1].Addr},
		}),
		"sentinel": redis.NewUniversalClient(&redis.UniversalOptions{
			Protocol: 2, Addrs: sentinel.Addrs(), MasterName: redistest.MasterName,
		}),
	}
}

func client(t *testing.T, s *redistest.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Protocol: 2, Addr: s.Addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func message(text string) []byte {
	return memory.Message{Role: memory.RoleUser, Content: text, Timestamp: 1}.Encode()
}

// fill writes with mneme's own stores everything that they keep.
func fill(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	s := redisstore.New(c, zerolog.Nop())
	_, err := s.Server.Epoch(ctx)
	require.NoError(t, err)
	for i, key := range []memory.Key{memory.ChatKey(memory.MustChat("12345")),
		memory.SubagentKey("analytic", memory.MustChat("12345")), memory.ChatKey(memory.MustChat("a:b")),
		memory.ChatKey(memory.MustChat("gone")), memory.ChatKey(memory.MustChat("x"))} {
		h := memory.Empty(key)
		for seq := range int64(3) {
			h, err = s.Append(ctx, h, memory.Mark{Run: run, Seq: seq + 1, Turn: int64(i + 1)},
				message(fmt.Sprint("текст <&> ", seq)))
			require.NoError(t, err)
		}
		_, err = s.Archives.Trim(ctx, h, int64(i+1), 2)
		require.NoError(t, err)
		require.NoError(t, s.Notes.Change(ctx, int64(i+1), key, func([]memory.Note) ([]memory.Note, error) {
			return []memory.Note{{ID: "n", Text: "заметка <&>"}}, nil
		}))
		if key.Chat() == memory.MustChat("a:b") { // with something that was taken back
			id := fmt.Sprint(i + 1)
			require.NoError(t, s.Rewinds.Begin(ctx, key.Chat(), "rewind:"+id, redisstore.SetAside{ID: id}, time.Minute))
			require.NoError(t, s.Rewinds.Pending(ctx, int64(i+1), key.Chat(), "", id, 0))
		}
	}
	require.NoError(t, s.EraseChat(ctx, 9, memory.MustChat("gone"), memory.ChatKey(memory.MustChat("gone"))))
	turn, err := s.Turns.Take(ctx, memory.MustChat("12345"), "token", "conversation", time.Minute)
	require.NoError(t, err)
	_, err = s.Runs.Begin(ctx, memory.MustChat("12345"), openRun, "hash")
	require.NoError(t, err)
	require.NoError(t, s.Processes.Announce(ctx, "process", "http://127.0.0.1:1"))
	require.NoError(t, s.Erasures.Note(ctx, time.Now().UnixMilli(), "chat:gone"))
	require.NoError(t,
		failure(s.Turns.Open(ctx, memory.MustChat("12345"), "token", time.Minute, redisstore.OpenRun{
			Run: openRun, Turn: turn.Number, Events: "http://127.0.0.1:1/", Body: "hash",
		})))
	for _, r := range []string{run, openRun} {
		require.NoError(t,
			failure(s.Runs.Log(ctx, memory.MustChat("12345"), r, true, redisstore.Logged{Seq: 1, Line: []byte(`{"a":1}`)},
				redisstore.Logged{Seq: 2, Line: []byte("\xff\x00")})))
	}
	_, err = s.Runs.Begin(ctx, memory.MustChat("a:b"), run, "hash")
	require.NoError(t, err)
	require.NoError(t, s.Runs.Finish(ctx, memory.MustChat("a:b"), run, []byte(`{"status":200}`)))
	require.NoError(t, c.Set(ctx, "subagent:analytic:x", "[tru", 0).Err())
	_, err = s.Load(ctx, 10, memory.Empty(memory.SubagentKey("analytic", memory.MustChat("x")))) // sets it aside
	require.NoError(t, err)
	require.NoError(t, c.Set(ctx, "subagent:foreign:x", `[{"role":"user","content":"by hand"}]`, 0).Err())
	ann, err := memory.Tenant{}.User("ann")
	require.NoError(t, err)
	turn, err = s.Turns.Take(ctx, memory.MustChat("a:b"), "token", "conversation", time.Minute)
	require.NoError(t, err)
	require.NoError(t, failure(s.Turns.Open(ctx, memory.MustChat("a:b"), "token", time.Minute,
		redisstore.OpenRun{Run: run, Turn: turn.Number, Body: "hash", User: ann, Posted: true})))
	require.NoError(t, s.Turns.Release(ctx, memory.MustChat("a:b"), "token"))
	require.NoError(t, s.Users.ChangeNotes(ctx, ann, func([]memory.Note) ([]memory.Note, error) {
		return []memory.Note{{ID: "n", Text: "заметка <&>", Chat: "a:b"}}, nil
	}))
	require.NoError(t, s.Tools.Accept(ctx, "crm",
		map[string]json.RawMessage{"refund": json.RawMessage(`{"name":"refund"}`)}))
	fillGateway(t, c)
}

func fillDocuments(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	documents := docstore.New(c, 0)
	named, err := docstore.NamedCollection(memory.Tenant{}, "docs")
	require.NoError(t, err)
	ofChat, err := docstore.OfChat(memory.MustChat("a:b"))
	require.NoError(t, err)
	for _, col := range []docstore.Collection{named, ofChat} {
		_, err := documents.Create(ctx, col)
		require.NoError(t, err)
		for i := range 12 {
			text := strings.Repeat("Паром стоит 14 крон. ", 20)
			if col == named && i%5 == 0 { // more than one record holds
				text = strings.Repeat(text, 1000)
			}
			for _, w := range documents.Put(ctx, col, docstore.Document{ID: fmt.Sprintf("d%02d.md", i), Title: "T",
				Text: text}) {
				require.NoError(t, w.Err)
			}
		}
		_, err = documents.Delete(ctx, col, "d07.md")
		require.NoError(t, err)
		require.NoError(t, documents.PutVectors(ctx, col, "space", map[string][]float32{"h1": {1, -2.5}, "h2": {0.1}}))
	}
}

func fillGateway(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	turns := proxystore.NewTurns(c, proxystore.TurnLimits{})
	scope := ledger.Scope{Route: "main", Conversation: "conversation"}
	at := time.Now()
	_, err := turns.Save(ctx, []ledger.Entry{{Scope: scope, Time: at, Turn: &ledger.Turn{}, Keys: []string{"k1"}}})
	require.NoError(t, err)
	require.NoError(t, turns.Erase(ctx, ledger.Erasure{Conversation: "erased", Time: at}))
	_, err = turns.Load(ctx, ledger.Query{ErasedSince: at.Add(-time.Minute)})
	require.NoError(t, err)
	took := limit.New(c, limit.Options{})
	for i := range 2500 {
		took.Commit(limit.Reservation{}, tally.Call{Time: at, Request: fmt.Sprint(i), Chat: fmt.Sprint("chat-", i)})
	}
	require.Eventually(t, func() bool { // closing waits for seconds only
		page, err := took.Usage.Read(ctx, tally.Query{Dimension: tally.ByTenant, First: at, Last: at})
		return err == nil && len(page.Rows) == 1 && page.Rows[0].Calls == 2500
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, took.Close())
	require.NoError(t, proxystore.NewActive(c, "a", func(string) bool { return true }, zerolog.Nop()).Use(ctx, "kimi"))
	require.NoError(t, proxystore.NewOwners(c, time.Hour).Claim(ctx, chat.Scope{
		Conversation: "conversation", Route: "main",
	}, "http://me"))
}

// left are the keys that a backup leaves out.
var left = []string{"mneme:epoch", "mneme:processes", "mneme:erasures", "mneme:chats", "proxy:turns:born",
	"proxy:copilot:{:conversation}", "{chat_history:12345}:turn", "turns:open"}

// content is everything that a store holds: by key its type, whether it expires,
// and what is in it.
func content(t *testing.T, c redis.UniversalClient) map[string]string {
	t.Helper()
	all := map[string]string{}
	read := func(ctx context.Context, c *redis.Client) error {
		for it := c.Scan(ctx, 0, "*", 1000).Iterator(); it.Next(ctx); {
			k := it.Val()
			kind := c.Type(ctx, k).Val()
			var value any
			switch kind {
			case "string":
				value = c.Get(ctx, k).Val()
			case "hash":
				value = c.HGetAll(ctx, k).Val()
			case "set":
				members := map[string]bool{}
				for _, m := range c.SMembers(ctx, k).Val() {
					members[m] = true
				}
				value = members
			case "zset":
				value = c.ZRangeWithScores(ctx, k, 0, -1).Val()
			case "stream":
				value = c.XRange(ctx, k, "-", "+").Val()
			}
			all[k] = fmt.Sprintf("%s %v %q", kind, c.PTTL(ctx, k).Val() > 0, fmt.Sprint(value))
		}
		return nil
	}
	if cluster, ok := c.(*redis.ClusterClient); ok {
		var one sync.Mutex
		require.NoError(t, cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			one.Lock()
			defer one.Unlock()
			return read(ctx, node)
		}))
		return all
	}
	require.NoError(t, read(ctx, c.(*redis.Client)))
	return all
}

func save(t *testing.T, c redis.UniversalClient) []byte {
	t.Helper()
	var file bytes.Buffer
	_, err := backup.Save(ctx, c, &file, quiet)
	require.NoError(t, err)
	return file.Bytes()
}

func restore(t *testing.T, c redis.UniversalClient, file []byte) {
	t.Helper()
	_, err := backup.Verify(bytes.NewReader(file))
	require.NoError(t, err)
	_, err = backup.Restore(ctx, c, bytes.NewReader(file), quiet)
	require.NoError(t, err)
}

// Whatever mneme keeps comes out of a backup as it went in, from any store to any
// other. What every store of ours writes is in it: a key that the backup does not
// know fails here.
func TestFromAnyStoreToAnyOther(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Cluster and a Sentinel")
	}
	t.Parallel()
	all := stores(t)
	for from, source := range all {
		fill(t, source)
		fillDocuments(t, source)
		want := content(t, source)
		for _, key := range left {
			require.Contains(t, want, key)
			delete(want, key)
		}
		file := save(t, source)
		for to, target := range all {
			if to == from {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				require.NoError(t, target.Set(ctx, "run:somebody:elses", "stays", 0).Err())
				require.NoError(t, target.Set(ctx, "chat_history:before", "[]", 0).Err())
				restore(t, target, file)
				got := content(t, target)
				require.NotEmpty(t, got["mneme:epoch"])
				require.Equal(t, `zset false "[{0 12345}]"`, got["turns:open"],
					"an open run is to be finished by whoever comes first")
				require.Equal(t, `string false "stays"`, got["run:somebody:elses"])
				for _, key := range []string{"mneme:epoch", "turns:open", "run:somebody:elses"} {
					delete(got, key)
				}
				require.Equal(t, want, got)
			})
			wipe(t, target)
		}
		wipe(t, source)
	}
}

func wipe(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	if cluster, is := c.(*redis.ClusterClient); is {
		require.NoError(t, cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			return c.FlushAll(ctx).Err()
		}))
		return
	}
	require.NoError(t, c.FlushAll(ctx).Err())
}

// unpacked is what a gzip file holds.
func unpacked(file []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// A backup that was cut or changed anywhere is refused.
func TestADamagedFileIsRefused(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := client(t, redistest.Start(t))
	fill(t, c)
	file := save(t, c)
	whole, err := unpacked(file)
	require.NoError(t, err)
	for cut := 0; cut < len(file); cut += 1 + len(file)/80 {
		_, err := backup.Verify(bytes.NewReader(file[:cut]))
		require.Error(t, err, "cut to %d of %d bytes", cut, len(file))
		bad := bytes.Clone(file)
		bad[cut] ^= 0x10
		if same, err := unpacked(bad); err == nil && bytes.Equal(same, whole) {
			continue // gzip's time and system, or padding bits in front of a block, which say nothing
		}
		_, err = backup.Verify(bytes.NewReader(bad))
		require.Error(t, err, "byte %d of %d changed", cut, len(file))
	}
	_, err = backup.Verify(bytes.NewReader(append(bytes.Clone(file), file...)))
	require.Error(t, err, "two files in one")
	_, err = backup.Verify(strings.NewReader("REDIS0010"))
	require.ErrorContains(t, err, "this is no backup that mneme wrote")
}

// While writers append, every saved history is one that a client could have read: its
// meta describes exactly its bytes.
func TestAHistoryAndItsMetaBelongTogether(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server)
	s := redisstore.New(server.Client(), zerolog.Nop())
	s.Archive.Off = true // it would grow, and each backup take longer than the one before
	stop, ended := make(chan struct{}), make(chan error)
	const writers = 4
	for w := range writers {
		go func() {
			h := memory.Empty(memory.ChatKey(memory.MustChat(fmt.Sprint(w))))
			for seq := int64(1); ; seq++ {
				select {
				case <-stop:
					ended <- nil
					return
				default:
				}
				var err error
				if h, err = s.Append(ctx, h, memory.Mark{Run: run, Seq: seq, Turn: 1}, message(fmt.Sprint(seq))); err == nil {
					h, err = s.Archives.Trim(ctx, h, 1, 40) // so that they stay as short as they are
				}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	target := client(t, redistest.Start(t))
	for range 20 {
		restore(t, target, save(t, c))
		for w := range writers {
			key := memory.ChatKey(memory.MustChat(fmt.Sprint(w)))
			value, err := target.Get(ctx, key.String()).Bytes()
			if errors.Is(err, redis.Nil) {
				continue // not begun yet
			}
			require.NoError(t, err)
			meta := target.HGetAll(ctx, "{"+key.String()+"}:meta").Val()
			h, err := memory.ParseHistory(key, value)
			require.NoError(t, err)
			require.Equal(t, meta["sum"], h.Sum().String())
			require.Equal(t, meta["count"], fmt.Sprint(h.Len()))
		}
	}
	close(stop)
	for range writers {
		require.NoError(t, <-ended)
	}
}

// A chat that is erased while the backup is made does not come back with it.
func TestErasedDuringTheBackup(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	source, target := client(t, redistest.Start(t)), client(t, redistest.Start(t))
	fill(t, source)
	s := redisstore.New(source, zerolog.Nop())
	erased := false
	var file bytes.Buffer
	_, err := backup.Save(ctx, source, &file, func(backup.Summary) {
		if !erased { // the chats' own histories have just been read
			erased = true
			require.NoError(t, s.EraseChat(ctx, 1<<50, memory.MustChat("12345"), memory.ChatKey(memory.MustChat("12345")),
				memory.SubagentKey("analytic", memory.MustChat("12345"))))
		}
	})
	require.NoError(t, err)
	restore(t, target, file.Bytes())
	require.Zero(t, target.Exists(ctx, "chat_history:12345", "subagent:analytic:12345", "turns:open", "events:12345:"+
		openRun, "run:12345:"+openRun).Val())
	require.Equal(t, fmt.Sprint(int64(1)<<50), target.HGet(ctx, "{chat_history:12345}:meta", "erased").Val(),
		"and stays erased")
	require.EqualValues(t, 1, target.Exists(ctx, "chat_history:a:b").Val())
}

// Documents that change meanwhile are saved each with its own head.
func TestDocumentsChangeDuringTheBackup(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	source, target := client(t, server), client(t, redistest.Start(t))
	documents := docstore.New(server.Client(), 100)
	docs, err := docstore.NamedCollection(memory.Tenant{}, "docs")
	require.NoError(t, err)
	_, err = documents.Create(ctx, docs)
	require.NoError(t, err)
	for i := range 8 {
		require.NoError(t, documents.Put(ctx, docs, docstore.Document{ID: fmt.Sprintf("d%02d.md", i), Text: "text"})[0].Err)
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			id := fmt.Sprintf("d%02d.md", i%15)
			if w := documents.Put(ctx, docs, docstore.Document{ID: id, Text: fmt.Sprint("text ", i)}); w[0].Err != nil {
				ended <- w[0].Err
				return
			}
			if _, err := documents.Delete(ctx, docs, fmt.Sprintf("d%02d.md", (i+7)%15)); err != nil {
				ended <- err
				return
			}
		}
	}()
	restored := docstore.New(target, 0)
	for range 10 {
		restore(t, target, save(t, source))
		heads, _, err := restored.List(ctx, docs, "", docstore.MaxPage)
		require.NoError(t, err)
		require.NotEmpty(t, heads)
		require.EqualValues(t, len(heads), target.HLen(ctx, "documents:{default:docs}").Val())
		for _, h := range heads {
			d, err := restored.Get(ctx, docs, h.ID)
			require.NoError(t, err)
			require.Equal(t, h.Version, d.Version)
			require.Equal(t, h.Hash, d.Hash)
		}
		_, err = restored.Last(ctx, docs)
		require.NoError(t, err)
	}
	close(stop)
	require.NoError(t, <-ended)
}

// A SCAN that began on one server proves nothing on its successor.
func TestARestartedServerFailsTheBackup(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	c := client(t, server)
	fill(t, c)
	restarted := false
	_, err := backup.Save(ctx, c, io.Discard, func(backup.Summary) {
		if !restarted {
			restarted = true
			server.Kill()
			require.NoError(t, server.Run())
		}
	})
	require.ErrorContains(t, err, "make the backup again")
}

// What had ended by the time of the restore does not come back; the log of an open
// run does, since its end must be told.
func TestExpiredKeysStayAway(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	source, target := client(t, redistest.Start(t)), client(t, redistest.Start(t))
	fill(t, source)
	for _, r := range []string{run, openRun} {
		require.NoError(t, source.PExpire(ctx, "events:12345:"+r, 5*time.Second).Err())
	}
	file := save(t, source)
	require.Eventually(t, func() bool {
		return source.Exists(ctx, "events:12345:"+run, "events:12345:"+openRun).Val() == 0
	}, time.Minute, 10*time.Millisecond)
	restore(t, target, file)
	require.Zero(t, target.Exists(ctx, "events:12345:"+run).Val())
	require.EqualValues(t, 1, target.XLen(ctx, "events:12345:"+openRun).Val())
	require.Greater(t, target.PTTL(ctx, "events:12345:"+openRun).Val(), 20*time.Minute)
}

func TestHoldsAndInUse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server)
	for _, key := range left {
		require.NoError(t, c.Set(ctx, key, "x", 0).Err())
	}
	key, err := backup.Holds(ctx, c)
	require.NoError(t, err)
	require.Empty(t, key, "what processes leave behind is no memory")
	user, err := backup.InUse(ctx, c)
	require.NoError(t, err)
	require.Contains(t, user, "{chat_history:12345}:turn")
	require.NoError(t, c.Del(ctx, "{chat_history:12345}:turn").Err())
	user, err = backup.InUse(ctx, c)
	require.NoError(t, err)
	require.Empty(t, user)

	service := redis.NewClient(&redis.Options{Addr: server.Addr, ClientName: backup.ClientName})
	defer service.Close()
	require.NoError(t, service.Ping(ctx).Err())
	user, err = backup.InUse(ctx, c)
	require.NoError(t, err)
	require.Contains(t, user, "a service of mneme is connected to it from 127.0.0.1:")
	require.NoError(t, c.Set(ctx, "{chat_history:1}:damaged:17", "x", 0).Err())
	key, err = backup.Holds(ctx, c)
	require.NoError(t, err)
	require.Equal(t, "{chat_history:1}:damaged:17", key)
}

// failure is the error of a call of which nothing else is wanted.
func failure[T any](_ T, err error) error { return err }
