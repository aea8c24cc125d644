package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
	"mneme/proxy/ledger"
)

var (
	turnsSave  = redisscript.New(lua, "turns_rest", "turns_atleast", "turns_save")
	turnsLoad  = redisscript.New(lua, "turns_load")
	turnsIndex = redisscript.New(lua, "turns_index")
	turnsList  = redisscript.New(lua, "turns_list")
	turnsErase = redisscript.New(lua, "turns_atleast", "turns_erase")
	turnsClear = redisscript.New(lua, "turns_clear")
	turnsKeep  = redisscript.New(lua, "turns_rest", "turns_atleast", "turns_keep")
	turnsStay  = redisscript.New(lua, "turns_atleast", "turns_stay")
)

// TurnLimits bound what is kept of each scope. A zero value means its default.
type TurnLimits struct {
	TTL     time.Duration // since the last entry of the scope; 24 h
	Entries int           // 256
	Bytes   int           // 16 MiB, not the 8 MiB of the ledger; the newest entry is kept whatever its size
}

const (
	// tombstone is how long at least an erasure is remembered: longer than a
	// request lasts, or a turn waits, that could come behind it.
	tombstone = time.Hour
	// maxErased bounds the list of erasures.
	maxErased = 10_000
	// manyConversations is when a key leads to too many of them, and so to none.
	manyConversations = 2

	erasedKey = "proxy:turns:erased"
	bornKey   = "proxy:turns:born"
	// bornLife is how long bornKey is there after the last gateway has read it, which each does all the time.
	bornLife = 24 * time.Hour
)

// Turns is a ledger.Remote. It is safe for concurrent use.
type Turns struct {
	redis  redis.UniversalClient
	limits TurnLimits
}

var _ ledger.Remote = (*Turns)(nil)

// NewTurns keeps turns through client, which the caller closes. Its options must
// set ContextTimeoutEnabled: a request does not wait longer for turns than its
// ledger's deadline says.
func NewTurns(client redis.UniversalClient, limits TurnLimits) *Turns {
	if limits.TTL <= 0 {
		limits.TTL = 24 * time.Hour
	}
	if limits.Entries <= 0 {
		limits.Entries = 256
	}
	if limits.Bytes <= 0 {
		limits.Bytes = 16 << 20
	}
	return &Turns{redis: client, limits: limits}
}

// metaKey has a hash tag that scopeKey has too: one script touches both.
func metaKey(tenant, conversation string) string {
	return "proxy:turns:{" + tenant + ":" + conversation + "}"
}

func scopeKey(s ledger.Scope) string { return metaKey(s.Tenant, s.Conversation) + ":" + s.Route }

func turnKey(tenant, route, key string) string {
	return "proxy:turn:" + tenant + ":" + route + ":" + key
}

// Save implements ledger.Remote. The keys that lead to a turn are there before
// it, and go again if it was erased: so nothing leads to what an erasure did not
// see.
func (t *Turns) Save(ctx context.Context, entries []ledger.Entry) ([]ledger.Mark, error) {
	var index, saves []redisscript.Call
	ttl := t.limits.TTL.Milliseconds()
	for _, e := range entries {
		for _, k := range e.Keys {
			key := turnKey(e.Scope.Tenant, e.Scope.Route, k)
			index = append(index, redisscript.Call{
				Script: turnsIndex, Keys: []string{key}, Args: []any{e.Scope.Conversation, ttl, manyConversations},
			})
		}
		record, err := encodeEntry(e)
		if err != nil {
			return nil, fmt.Errorf("save a turn: %w", err)
		}
		saves = append(saves, redisscript.Call{
			Script: turnsSave, Keys: []string{metaKey(e.Scope.Tenant, e.Scope.Conversation), scopeKey(e.Scope)}, Args: []any{
				e.Time.UnixMicro(), record, e.Scope.Route, ttl, tombstone.Milliseconds(), t.limits.Entries, t.limits.Bytes,
				strconv.FormatUint(rand.Uint64(), 36),
			},
		})
	}
	lists := t.lists(entries)
	// In one pipeline what comes first is done first, but for a cluster's.
	if _, slots := t.redis.(*redis.ClusterClient); slots || len(index) > 0 {
		index, lists = append(lists, index...), nil
	}
	if len(index) > 0 {
		if _, err := runAll(ctx, t.redis, index); err != nil {
			return nil, fmt.Errorf("save what leads to turns: %w", err)
		}
	}
	answers, err := runAll(ctx, t.redis, append(lists, saves...))
	if err != nil {
		return nil, fmt.Errorf("save turns: %w", err)
	}
	answers = answers[len(lists):]
	var removed []ledger.Entry
	marks := make([]ledger.Mark, len(entries))
	for i, answer := range answers {
		reply, err := words(answer)
		if err != nil {
			return nil, fmt.Errorf("save turns: %w", err)
		}
		if len(reply) < 3 {
			if len(reply) > 0 { // it was erased
				removed = append(removed, entries[i])
			}
			continue
		}
		if marks[i], err = readMark(reply[1], reply[2]); err != nil {
			return nil, fmt.Errorf("save turns: %w", err)
		}
		removed = append(removed, decodeEntries(entries[i].Scope, reply[3:])...)
	}
	if err := t.unindex(ctx, removed); err != nil {
		return nil, fmt.Errorf("save turns: %w", err)
	}
	return marks, nil
}

// listed is for how long after its last turn a conversation is in its tenant's list: longer than it can be kept.
const listed = 9 * 24 * time.Hour

// ofTenant is the sorted set of the conversations of a tenant, by the Unix ms of the last turn; "" for the default
// tenant and for callers that are known by their credentials, which are never erased as a whole.
func ofTenant(tenant string) string {
	t, err := memory.ParseTenant(tenant)
	if err != nil || t == (memory.Tenant{}) {
		return ""
	}
	return "proxy:turns:of:" + tenant
}

// lists bring the conversations of entries into the lists of their tenants, before there is anything of them.
func (t *Turns) lists(entries []ledger.Entry) (calls []redisscript.Call) {
	now, life := time.Now(), t.limits.TTL+listed
	done := map[string]bool{}
	for _, e := range entries {
		key := ofTenant(e.Scope.Tenant)
		one := key + " " + e.Scope.Conversation
		if key == "" || done[one] {
			continue
		}
		done[one] = true
		calls = append(calls, redisscript.Call{Script: turnsList, Keys: []string{key}, Args: []any{e.Scope.Conversation,
			now.UnixMilli(), now.Add(-life).UnixMilli(), life.Milliseconds()}})
	}
	return calls
}

// Conversations gives up to count conversations of a tenant, those first that were not used for longest, and how many
// there are; some of them may have ended.
func (t *Turns) Conversations(ctx context.Context, tenant string, count int) (names []string, total int, err error) {
	key := ofTenant(tenant)
	if key == "" {
		return nil, 0, nil
	}
	pipe := t.redis.Pipeline()
	page, number := pipe.ZRange(ctx, key, 0, int64(count-1)), pipe.ZCard(ctx, key)
	if err := failure(pipe.Exec(ctx)); err != nil {
		return nil, 0, fmt.Errorf("list conversations: %w", err)
	}
	return page.Val(), int(number.Val()), nil
}

// unindex removes what leads to entries.
func (t *Turns) unindex(ctx context.Context, entries []ledger.Entry) error {
	pipe := t.redis.Pipeline()
	for _, e := range entries {
		for _, k := range e.Keys {
			pipe.SRem(ctx, turnKey(e.Scope.Tenant, e.Scope.Route, k), e.Scope.Conversation)
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	if err := failure(pipe.Exec(ctx)); err != nil {
		return fmt.Errorf("remove keys of turns: %w", err)
	}
	return nil
}

// Load implements ledger.Remote.
func (t *Turns) Load(ctx context.Context, q ledger.Query) (ledger.Loaded, error) {
	loaded, unknown, err := t.load(ctx, q, turnsLoad.EvalSha)
	if unknown {
		loaded, _, err = t.load(ctx, q, turnsLoad.Eval)
	}
	if err != nil {
		return ledger.Loaded{}, fmt.Errorf("load turns: %w", err)
	}
	return loaded, nil
}

type evaluate func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

// load sends a query as one pipeline; unknown says that Redis did not know the
// script.
func (t *Turns) load(ctx context.Context, q ledger.Query, eval evaluate) (out ledger.Loaded, unknown bool, err error) {
	pipe := t.redis.Pipeline()
	var chunks []*redis.Cmd
	for _, p := range q.Scopes {
		chunks = append(chunks, eval(ctx, pipe, []string{scopeKey(p.Scope)}, p.Mark.Born, p.Mark.Last))
	}
	var lookups []*redis.StringSliceCmd
	for _, k := range q.Keys {
		lookups = append(lookups, pipe.SMembers(ctx, turnKey(q.Tenant, q.Route, k)))
	}
	var erased *redis.ZSliceCmd
	var born *redis.StringCmd
	if !q.ErasedSince.IsZero() {
		pipe.SetNX(ctx, bornKey, strconv.FormatUint(rand.Uint64(), 36), bornLife)
		born = pipe.GetEx(ctx, bornKey, bornLife)
		erased = pipe.ZRangeByScoreWithScores(ctx, erasedKey, &redis.ZRangeBy{
			Min: strconv.FormatInt(q.ErasedSince.UnixMicro(), 10), Max: "+inf",
		})
	}
	if pipe.Len() == 0 {
		return out, false, nil
	}
	if err = failure(pipe.Exec(ctx)); err != nil {
		return out, redisscript.Unknown(err), err
	}
	for i, cmd := range chunks {
		chunk, err := readChunk(q.Scopes[i].Scope, cmd)
		if err != nil {
			return out, false, err
		}
		out.Chunks = append(out.Chunks, chunk)
	}
	unique := map[string]struct{}{}
	for _, cmd := range lookups {
		conversations := cmd.Val()
		if len(conversations) >= manyConversations {
			continue
		}
		for _, c := range conversations {
			if _, ok := unique[c]; !ok {
				unique[c] = struct{}{}
				out.Conversations = append(out.Conversations, c)
			}
		}
	}
	if erased != nil {
		out.Born = born.Val()
		for _, z := range erased.Val() {
			name, _ := z.Member.(string)
			tenant, conversation, _ := strings.Cut(name, ":")
			out.Erasures = append(out.Erasures, ledger.Erasure{Tenant: tenant, Conversation: conversation,
				Time: time.UnixMicro(int64(z.Score))})
		}
	}
	return out, false, nil
}

func readChunk(s ledger.Scope, cmd *redis.Cmd) (ledger.Chunk, error) {
	reply, err := words(cmd)
	if err != nil || len(reply) == 0 {
		return ledger.Chunk{}, err
	}
	if len(reply) < 2 {
		return ledger.Chunk{}, fmt.Errorf("%d words where a scope was expected", len(reply))
	}
	mark, err := readMark(reply[0], reply[1])
	if err != nil {
		return ledger.Chunk{}, fmt.Errorf("%s: %w", scopeKey(s), err)
	}
	return ledger.Chunk{Mark: mark, Entries: decodeEntries(s, reply[2:])}, nil
}

func readMark(born, last string) (ledger.Mark, error) {
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil {
		return ledger.Mark{}, fmt.Errorf("number of an entry: %w", err)
	}
	return ledger.Mark{Born: born, Last: n}, nil
}

// Erase implements ledger.Remote. The erasure stands in the conversation's meta
// before anything is removed: what is saved from then on is refused, or is of a
// request that came later.
func (t *Turns) Erase(ctx context.Context, e ledger.Erasure) error {
	timestamp := e.Time.UnixMicro()
	cmds, err := runAll(ctx, t.redis, []redisscript.Call{{
		Script: turnsErase, Keys: []string{metaKey(e.Tenant, e.Conversation)},
		Args: []any{timestamp, tombstone.Milliseconds()},
	}})
	if err != nil {
		return fmt.Errorf("mark as erased: %w", err)
	}
	routes, err := words(cmds[0])
	if err != nil {
		return err
	}
	var clears []redisscript.Call
	for _, route := range routes {
		s := ledger.Scope{Tenant: e.Tenant, Route: route, Conversation: e.Conversation}
		clears = append(clears, redisscript.Call{Script: turnsClear,
			Keys: []string{scopeKey(s), metaKey(e.Tenant, e.Conversation)}, Args: []any{route, tombstone.Milliseconds()}})
	}
	var removed []ledger.Entry
	if len(clears) > 0 {
		if cmds, err = runAll(ctx, t.redis, clears); err != nil {
			return fmt.Errorf("remove turns: %w", err)
		}
	}
	for i, route := range routes {
		entries, err := words(cmds[i])
		if err != nil {
			return err
		}
		removed = append(removed, decodeEntries(ledger.Scope{Tenant: e.Tenant, Route: route, Conversation: e.Conversation},
			entries)...)
	}
	if err := t.unindex(ctx, removed); err != nil {
		return err
	}
	pipe := t.redis.Pipeline()
	pipe.ZAdd(ctx, erasedKey, redis.Z{Score: float64(timestamp), Member: e.Tenant + ":" + e.Conversation})
	pipe.ZRemRangeByScore(ctx, erasedKey, "-inf", strconv.FormatInt(timestamp-tombstone.Microseconds(), 10))
	pipe.ZRemRangeByRank(ctx, erasedKey, 0, -maxErased-1)
	pipe.PExpire(ctx, erasedKey, tombstone)
	if key := ofTenant(e.Tenant); key != "" {
		pipe.ZRem(ctx, key, e.Conversation)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("tell the others: %w", err)
	}
	return nil
}

// Keep implements ledger.Remote. The time stands in the conversation's meta before
// any of its scopes lives longer: what is saved from then on heeds it.
func (t *Turns) Keep(ctx context.Context, tenant, conversation string, until time.Time) error {
	cmds, err := runAll(ctx, t.redis, []redisscript.Call{{
		Script: turnsKeep, Keys: []string{metaKey(tenant, conversation)}, Args: []any{until.UnixMilli()},
	}})
	if err != nil {
		return fmt.Errorf("keep turns: %w", err)
	}
	routes, err := words(cmds[0])
	if err != nil || len(routes) < 2 {
		return err
	}
	var stays []redisscript.Call
	for _, route := range routes[1:] {
		s := ledger.Scope{Tenant: tenant, Route: route, Conversation: conversation}
		stays = append(stays, redisscript.Call{Script: turnsStay, Keys: []string{scopeKey(s)}, Args: []any{routes[0]}})
	}
	if _, err := runAll(ctx, t.redis, stays); err != nil {
		return fmt.Errorf("keep turns: %w", err)
	}
	return nil
}
