package access

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/rs/zerolog"

	"mneme/memory"
)

// How long what is known of a key holds.
const (
	// Fresh is for how long a key is not looked up again: a revocation reaches each process within
	// this time. A look-up that is under way counts from its beginning.
	Fresh = 4 * time.Second
	// Stale is for how long a key goes on that was good when the store last answered, while the
	// store is away. Keys that are not known then are refused with 503 and not with 401.
	Stale = 5 * time.Minute

	lookAgain  = time.Second      // after which the key of a request that goes on is looked at again
	lookupTime = 2 * time.Second  // for the store to answer
	awayPause  = time.Second      // between two look-ups of a key while the store is away
	cacheSize  = 10_000           // keys, and as many texts that are none
	uses       = 1024             // last uses that wait to be written
	lostFor    = 10 * time.Minute // after which a lost key is not told of any more, since it is not in use
)

// wrongKey is all that is said of a key that is none: not whether its id is one.
const wrongKey = "This key is not known; check it for a part that is missing, or ask for another one."

// Authenticator tells the principal of a key. Safe for concurrent use; Close it.
type Authenticator struct {
	file  *File  // asked first; nil for none
	store *Store // nil for none
	log   zerolog.Logger
	now   func() time.Time

	cache *otter.Cache[string, entry]     // by id
	wrong *otter.Cache[string, time.Time] // texts that open nothing, by their hash: when the store is asked again

	// lostKeys holds, by id, keys that were valid here and of which the store has no record although they were not
	// revoked. They are refused. An entry was read when a request used the key last.
	lostKeys *otter.Cache[string, entry]
	// Losses counts those that were ever found.
	Losses atomic.Int64

	used     chan use
	mu       sync.Mutex           // guards minutes
	minutes  map[string]time.Time // when last uses were last noted
	life     context.Context
	end      context.CancelFunc
	finished chan struct{}
}

// use is that a key was used in a minute.
type use struct {
	id     string
	tenant memory.Tenant
	minute time.Time
}

// entry is what the store said of an id.
type entry struct {
	key  Key
	read time.Time // when it was asked
	next time.Time // when it is asked again
}

// NewAuthenticator finds keys in a file and in a store, either of which may be nil.
func NewAuthenticator(file *File, store *Store, log zerolog.Logger) *Authenticator {
	a := &Authenticator{
		file: file, store: store, log: log, now: time.Now,
		cache:    otter.Must(&otter.Options[string, entry]{MaximumSize: cacheSize}),
		wrong:    otter.Must(&otter.Options[string, time.Time]{MaximumSize: cacheSize}),
		lostKeys: otter.Must(&otter.Options[string, entry]{MaximumSize: cacheSize}),
		used:     make(chan use, uses), minutes: map[string]time.Time{}, finished: make(chan struct{}),
	}
	a.life, a.end = context.WithCancel(context.Background())
	go a.noteUses()
	return a
}

// Close ends what is written in the background.
func (a *Authenticator) Close() error {
	a.end()
	<-a.finished
	return nil
}

// Principal gives the principal of a key, by its text. Errors are *Refusal: 401 for a key that
// is wrong, has expired or was revoked, 503 if that cannot be known now.
func (a *Authenticator) Principal(ctx context.Context, presented string) (Principal, error) {
	id, ok := idOf(presented)
	if !ok {
		return Principal{}, unauthorized(wrongKey)
	}
	hash := hashOf(presented)
	k, ok, err := a.key(ctx, id, hash)
	switch {
	case err != nil:
		return Principal{}, err
	case !ok:
		k = Key{hash: hashOf("")} // compared all the same, so that it takes as long
	}
	if why := k.opens(hash, a.now()); why != "" {
		return Principal{}, unauthorized(why)
	}
	a.note(id, k.Tenant)
	p := k.Principal()
	p.hash = hash
	return p, nil
}

// Check is nil if the key of a principal that was let in a while ago is still good. Errors are those of Principal.
func (a *Authenticator) Check(ctx context.Context, p Principal) error {
	k, ok, err := a.key(ctx, p.Key, p.hash)
	if err != nil {
		return err
	}
	why := wrongKey
	switch {
	case ok && p.hash == "": // another service of ours names the key
		why = k.inactiveReason(a.now())
	case ok:
		why = k.opens(p.hash, a.now())
	}
	if why != "" {
		return unauthorized(why)
	}
	return nil
}

// InFile gives the ids of the keys in the operator's file, of which this process knows, by their tenants.
func (a *Authenticator) InFile() map[memory.Tenant][]string {
	if a.file == nil {
		return nil
	}
	return a.file.tenants()
}

// key finds the key of an id, for a caller with the text of a hash, or "" for any. Of a text that does not open what
// is known of the key the store is asked at once: the key may have been rotated a moment ago. That holds of texts
// with a made-up id as well, so that the time it takes does not tell which ids there are.
func (a *Authenticator) key(ctx context.Context, id, hash string) (Key, bool, error) {
	if a.file != nil {
		if k, ok := a.file.find(id); ok {
			return k, true, nil
		}
	}
	if a.store == nil {
		return Key{}, false, nil
	}
	now := a.now()
	opens := func(k Key) bool { return hash == "" || k.opens(hash, now) != wrongKey }
	cached, have := a.cache.GetIfPresent(id)
	fits := have && opens(cached.key)
	if fits && now.Before(cached.next) {
		return cached.key, true, nil
	}
	if until, ok := a.wrong.GetIfPresent(hash); ok && now.Before(until) {
		return Key{}, false, nil
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime) // the next request has use for it too
	defer cancel()
	k, ok, err := a.store.find(asking, id)
	switch {
	case err != nil && fits && now.Sub(cached.read) < Stale:
		cached.next = a.now().Add(awayPause)
		a.cache.Set(id, cached)
		a.log.Warn().Err(err).Msg("the keys cannot be read; those that were good a moment ago go on for a while")
		return cached.key, true, nil
	case err != nil:
		a.log.Warn().Err(err).Msg("the keys cannot be read; requests are refused")
		if no := new(memory.RefusedError); errors.As(err, &no) {
			return Key{}, false, &Refusal{Status: errAway.Status, Code: errAway.Code,
				Message: "Keys cannot be checked: Redis refuses " + no.What + ". An operator has to fix this."}
		}
		return Key{}, false, errAway
	}
	if hash != "" && (!ok || !opens(k)) {
		a.wrong.Set(hash, now.Add(Fresh))
	}
	if !ok {
		a.cache.Invalidate(id)
		a.missing(asking, id, hash, cached)
		return Key{}, false, nil
	}
	a.lostKeys.Invalidate(id)
	a.cache.Set(id, entry{key: k, read: now, next: now.Add(Fresh)})
	return k, true, nil
}

// missing notes that the store has no record of an id, of which before is what is known, the zero value for nothing.
func (a *Authenticator) missing(ctx context.Context, id, hash string, cached entry) {
	now := a.now()
	e, isLost := a.lostKeys.GetIfPresent(id)
	switch {
	case isLost && (hash == "" || e.key.opens(hash, now) == ""):
		a.lostKeys.Set(id, entry{key: e.key, read: now})
	case !isLost && cached.key.ID != "" && cached.key.inactiveReason(now) == "" && !tenantErased(ctx, a.store, cached):
		if _, first := a.lostKeys.SetIfAbsent(id, entry{key: cached.key, read: now}); first {
			a.Losses.Add(1)
			a.log.Error().Str("key", id).Str("tenant", cached.key.Tenant.String()).Msg(
				"Redis has lost an API key that was in use: create it anew with mneme keys create, or restore Redis from a backup")
		}
	}
}

var errAway = &Refusal{
	Status: http.StatusServiceUnavailable, Code: "keys_unavailable", RetryAfter: 2 * time.Second,
	Message: "Keys cannot be checked right now; please try again.",
}

// note has a key's last use written, at most once a minute, and not in the request's way.
func (a *Authenticator) note(id string, tenant memory.Tenant) {
	if a.store == nil {
		return
	}
	minute := a.now().UTC().Truncate(time.Minute)
	a.mu.Lock()
	recorded := a.minutes[id].Equal(minute)
	if !recorded {
		if len(a.minutes) >= cacheSize {
			clear(a.minutes)
		}
		a.minutes[id] = minute
	}
	a.mu.Unlock()
	if recorded {
		return
	}
	select {
	case a.used <- use{id, tenant, minute}:
	default: // the next minute's is written
	}
}

// noteUses writes last uses until the end.
func (a *Authenticator) noteUses() {
	defer close(a.finished)
	for {
		select {
		case u := <-a.used:
			ctx, cancel := context.WithTimeout(a.life, lookupTime)
			err := a.store.touch(ctx, u)
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				a.log.Debug().Err(err).Msg("the last use of a key was not noted")
			}
		case <-a.life.Done():
			return
		}
	}
}
