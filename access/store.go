package access

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

//go:embed lua
var lua embed.FS

var changeScript = redisscript.New(lua, "change")

// MaxOverlap is how long a rotated key's former text may be taken.
const MaxOverlap = 30 * 24 * time.Hour

// Store keeps keys in Redis: each in a hash mneme:key:<id>, and their ids in the sorted set
// mneme:keys, by the time when they were made. Errors of Redis are memory.ErrUnavailable.
type Store struct {
	redis redis.UniversalClient
}

// NewStore is the store of a client.
func NewStore(client redis.UniversalClient) *Store { return &Store{client} }

func recordName(id string) string { return memory.RedisKey{Kind: memory.KindKey, Run: id}.String() }

// Create makes a key of the name, tenant, scopes, limits and expiry that k has. text is the key
// itself, which cannot be learned later. Errors are ErrBadKey.
func (s *Store) Create(ctx context.Context, k Key) (text string, created Key, err error) {
	if err := k.check(); err != nil {
		return "", Key{}, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	if !k.Expires.IsZero() && !k.Expires.After(now) {
		return "", Key{}, fmt.Errorf("%w: it would have expired already; give a time to come", ErrBadKey)
	}
	k.ID, k.Created = newID(), now
	k.Revoked, k.Used, k.Overlap, k.previous = time.Time{}, time.Time{}, time.Time{}, ""
	text = newText(k.ID)
	k.hash = hashOf(text)
	// The index first: a key that works is listed, whatever fails in between.
	listed := redis.Z{Score: float64(now.Unix()), Member: k.ID}
	if err := s.redis.ZAdd(ctx, string(memory.KindKeys), listed).Err(); err != nil {
		return "", Key{}, redisscript.Unavailable(err)
	}
	if err := s.redis.HSet(ctx, recordName(k.ID), k.fields()...).Err(); err != nil {
		return "", Key{}, redisscript.Unavailable(err)
	}
	return text, k, nil
}

// fields are those of a record that a key begins with.
func (k Key) fields() []any {
	return []any{
		"hash", k.hash, "name", k.Name, "tenant", k.Tenant.String(), "scopes", scopeNames(k.Scopes),
		"rate", k.Rate.String(), "budget", k.Budget.String(), "created", seconds(k.Created), "expires", seconds(k.Expires),
	}
}

// seconds are Unix seconds, "" for no time.
func seconds(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.Unix(), 10)
}

func readSeconds(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

func readKey(id string, fields map[string]string) (k Key, ok bool) {
	tenant, err := memory.ParseTenant(fields["tenant"])
	if err != nil || fields["hash"] == "" {
		return Key{}, false
	}
	k = Key{
		ID: id, Name: fields["name"], Tenant: tenant,
		Created: readSeconds(fields["created"]), Expires: readSeconds(fields["expires"]),
		Revoked: readSeconds(fields["revoked"]), Used: readSeconds(fields["used"]), Overlap: readSeconds(fields["overlap"]),
		hash: fields["hash"], previous: fields["previous"],
	}
	if k.Limits, err = ParseLimits(fields["rate"], fields["budget"]); err != nil {
		return Key{}, false // written by hand: better no key than one without bounds
	}
	for name := range strings.SplitSeq(fields["scopes"], ",") {
		k.Scopes = append(k.Scopes, Scope(name))
	}
	return k, true
}

// find reads a key. ok is false if there is none.
func (s *Store) find(ctx context.Context, id string) (k Key, ok bool, err error) {
	fields, err := s.redis.HGetAll(ctx, recordName(id)).Result()
	k, ok = readKey(id, fields)
	return k, ok, redisscript.Unavailable(err)
}

// Get is a key of an id, of whatever tenant. Errors are ErrUnknownKey.
func (s *Store) Get(ctx context.Context, id string) (Key, error) {
	if !keyID.MatchString(id) {
		return Key{}, ErrUnknownKey
	}
	k, ok, err := s.find(ctx, id)
	if err == nil && !ok {
		err = ErrUnknownKey
	}
	return k, err
}

// List is all keys, the oldest first.
func (s *Store) List(ctx context.Context) ([]Key, error) {
	ids, err := s.redis.ZRange(ctx, string(memory.KindKeys), 0, -1).Result()
	if err != nil {
		return nil, redisscript.Unavailable(err)
	}
	var keys []Key
	for chunk := range slices.Chunk(ids, 500) {
		cmds := make([]*redis.MapStringStringCmd, len(chunk))
		if _, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
			for i, id := range chunk {
				cmds[i] = p.HGetAll(ctx, recordName(id))
			}
		}); err != nil {
			return nil, redisscript.Unavailable(err)
		}
		for i, id := range chunk {
			if k, ok := readKey(id, cmds[i].Val()); ok {
				keys = append(keys, k)
			}
		}
	}
	return keys, nil
}

// change sets fields of a record if its hash is as given, "" for any. ok is false if it is not.
func (s *Store) change(ctx context.Context, id, hash string, fields ...any) (ok bool, err error) {
	n, err := changeScript.Run(ctx, s.redis, []string{recordName(id)}, slices.Concat([]any{hash}, fields)...).Int()
	return n == 1, redisscript.Unavailable(err)
}

// Revoke ends a key, which no Authenticator takes any more after Fresh at the latest. A revoked one
// stays revoked since then. Errors are ErrUnknownKey.
func (s *Store) Revoke(ctx context.Context, id string) (Key, error) {
	k, err := s.Get(ctx, id)
	if err != nil || !k.Revoked.IsZero() {
		return k, err
	}
	k.Revoked = time.Now().UTC().Truncate(time.Second)
	ok, err := s.change(ctx, id, "", "revoked", seconds(k.Revoked))
	if err == nil && !ok {
		err = ErrUnknownKey
	}
	return k, err
}

// Rotate gives a key another text, and takes the former one for overlap, at most MaxOverlap. Id,
// tenant, scopes and what was spent stay. Errors are ErrUnknownKey, and ErrBadKey for a key that is
// revoked or expired, or that another caller has just rotated.
func (s *Store) Rotate(ctx context.Context, id string, overlap time.Duration) (text string, rotated Key, err error) {
	k, err := s.Get(ctx, id)
	now := time.Now().UTC().Truncate(time.Second)
	switch {
	case err != nil:
		return "", Key{}, err
	case overlap < 0 || overlap > MaxOverlap:
		return "", Key{}, fmt.Errorf("%w: an overlap is 0 to 720 hours", ErrBadKey)
	case !k.Revoked.IsZero():
		return "", Key{}, fmt.Errorf("%w: it is revoked; create another one", ErrBadKey)
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "", Key{}, fmt.Errorf("%w: it has expired; create another one", ErrBadKey)
	}
	text = newText(id)
	read := k.hash
	k.hash, k.previous, k.Overlap = hashOf(text), read, now.Add(overlap)
	ok, err := s.change(ctx, id, read, "hash", k.hash, "previous", k.previous, "overlap", seconds(k.Overlap))
	if err == nil && !ok {
		err = fmt.Errorf("%w: somebody else has just rotated it; look at mneme keys ls, and try again", ErrBadKey)
	}
	if err != nil {
		return "", Key{}, err
	}
	return text, k, nil
}

// touch notes that a key was used in a minute: in its record, if it has one, and for its tenant.
func (s *Store) touch(ctx context.Context, u use) error {
	_, err := s.change(ctx, u.id, "", "used", seconds(u.minute))
	if err != nil {
		return err
	}
	used := redis.Z{Score: float64(u.minute.Unix()), Member: u.tenant.String()}
	return redisscript.Unavailable(s.redis.ZAddGT(ctx, string(memory.KindTenants), used).Err())
}

// TenantErased is how the actions begin that the default tenant's audit log has of the erasure of another tenant: one
// before its first key is revoked, and one when the records of its keys are gone.
const TenantErased = "tenant.erase"

// tenantErased says whether the tenant of a key was erased since the key was read, with the records of its keys.
func tenantErased(ctx context.Context, s *Store, e entry) bool {
	start := strconv.FormatInt(e.read.Add(-time.Hour).UnixMilli(), 10) // the clocks may differ
	did, _ := s.redis.XRevRangeN(ctx, string(memory.KindAudit), "+", start, 1000).Result()
	return slices.ContainsFunc(did, func(m redis.XMessage) bool {
		return strings.HasPrefix(fmt.Sprint(m.Values["action"]), TenantErased) &&
			m.Values["target"] == "tenants/"+e.key.Tenant.String()
	})
}

// Erase removes the records of keys, which should be revoked since longer than Fresh: nothing tells from then on that
// they were there.
func (s *Store) Erase(ctx context.Context, ids ...string) error {
	for _, id := range ids { // the index last, so that what is interrupted can be found
		if err := s.redis.Del(ctx, recordName(id)).Err(); err != nil {
			return redisscript.Unavailable(err)
		}
		if err := s.redis.ZRem(ctx, string(memory.KindKeys), id).Err(); err != nil {
			return redisscript.Unavailable(err)
		}
	}
	return nil
}
