package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// recordLife is how long the record of a post with an Idempotency-Key lives after it
// was last written: so long it is answered from the record when it is repeated.
const recordLife = 24 * time.Hour

// logLife is how long the log of a run that goes on outlives its last event. A quiet
// run is still there when its next event comes, and can be resumed once it is over.
func (s *Store) logLife() time.Duration { return s.RunLife + s.ResumeLife }

// openLife is how long the record of a run that begins lives, and the entry in the
// index by which an erasure finds the record and the log.
func (s *Store) openLife(keyed bool) time.Duration {
	life := s.RunLife + s.logLife() // the last event may come at the end of RunLife
	if keyed {
		life = max(life, recordLife)
	}
	return life
}

// Record is what is known of a run: enough to answer a repeated post, and to tell
// where its events are.
type Record struct {
	Body string // hash of what was posted
	// Result is the final answer as JSON, empty while the run goes on. That of a run
	// which no post can repeat is an empty object.
	Result []byte
	// Newest is the number of the newest attempt at what was posted. Only the record
	// of the first attempt has it; 0 there means that there is no other.
	Newest int
	// Rewound: it was taken back, with all that it said.
	Rewound bool
}

// Over says whether the run has come to its end.
func (r *Record) Over() bool { return len(r.Result) > 0 || r.Rewound }

// Begin notes that a run exists, before it is posted; found is the record of a
// run with this id that is there already.
func (s *Store) Begin(ctx context.Context, chat memory.Chat, run, body string) (found *Record, err error) {
	return s.begin(ctx, chat, run, body, true)
}

// BeginUnkeyed is Begin for a post without an Idempotency-Key. No post can repeat it,
// so its record lives only as long as its events, which other processes find by it.
func (s *Store) BeginUnkeyed(ctx context.Context, chat memory.Chat, run, body string) (found *Record, err error) {
	return s.begin(ctx, chat, run, body, false)
}

func (s *Store) begin(ctx context.Context, chat memory.Chat, run, body string, keyed bool) (*Record, error) {
	// The index first: what is kept of a run must be found when the chat is erased.
	life, unkeyed := s.openLife(keyed), 1
	if keyed {
		unkeyed = 0
	}
	begin := redisscript.Command(ctx, beginScript, []string{recordKey(chat, run)}, body, int(life.Seconds()), unkeyed)
	index := redis.NewIntCmd(ctx, "hset", chatMeta(chat), "r:"+run, s.now().Add(life).UnixMilli())
	if err := s.inOrder(ctx, []*redis.Script{beginScript}, index, begin); err != nil {
		return nil, failure(err, "noting run %s", run)
	}
	r, err := read(begin)
	if err == nil && r.Word() == "found" {
		return s.Record(ctx, chat, run)
	}
	return nil, failure(err, "noting run %s", run)
}

// Record is what is known of a run; nil if nothing is.
func (s *Store) Record(ctx context.Context, chat memory.Chat, run string) (*Record, error) {
	values, err := s.redis.HGetAll(ctx, recordKey(chat, run)).Result()
	if err != nil {
		return nil, failure(err, "looking for run %s", run)
	}
	if len(values) == 0 {
		return nil, nil
	}
	newest, _ := strconv.Atoi(values["newest"])
	return &Record{Body: values["body"], Result: []byte(values["result"]), Newest: newest,
		Rewound: values["rewound"] != ""}, nil
}

// Retried notes in the record of a first run that there is a further attempt at
// the same post. The record lives as long as that of the newest attempt.
func (s *Store) Retried(ctx context.Context, chat memory.Chat, first, body string, attempt int) error {
	// As in begin, the index first.
	life, record := s.openLife(true), recordKey(chat, first)
	err := s.redis.HSet(ctx, chatMeta(chat), "r:"+first, s.now().Add(life).UnixMilli()).Err()
	if err == nil {
		_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, record, "body", body, "newest", attempt)
			p.Expire(ctx, record, life)
			return nil
		})
	}
	return failure(err, "noting attempt %d of run %s", attempt, first)
}

// Finish keeps a run's final answer, and bounds the life of its log.
func (s *Store) Finish(ctx context.Context, chat memory.Chat, run string, result []byte) error {
	err := s.inOrder(ctx, []*redis.Script{finishScript},
		redisscript.Command(ctx, finishScript, []string{recordKey(chat, run)},
			result, s.keptLife(true).Milliseconds(), s.keptLife(false).Milliseconds()),
		redis.NewBoolCmd(ctx, "pexpire", eventsKey(chat, run), s.ResumeLife.Milliseconds()))
	return failure(err, "finishing run %s", run)
}

// keptLife is how long the record of a run lives that is over.
func (s *Store) keptLife(keyed bool) time.Duration {
	if keyed {
		return max(recordLife, s.ResumeLife)
	}
	return s.ResumeLife
}

// Withdraw forgets a run that was never accepted.
func (s *Store) Withdraw(ctx context.Context, chat memory.Chat, run string) error {
	err := s.redis.Del(ctx, recordKey(chat, run)).Err()
	logged := int64(0) // of an earlier run with this id, whose record was lost: it stays in the index
	if err == nil {
		logged, err = s.redis.Exists(ctx, eventsKey(chat, run)).Result()
	}
	gone := []string{}
	if err == nil && logged == 0 {
		gone = append(gone, "r:"+run)
	}
	if err == nil {
		var begins string
		if begins, err = s.redis.HGet(ctx, chatMeta(chat), "begins").Result(); errors.Is(err, redis.Nil) {
			err = nil
		}
		if strings.HasPrefix(begins, run+".") {
			gone = append(gone, "begins")
		}
	}
	if err == nil && len(gone) > 0 {
		err = s.redis.HDel(ctx, chatMeta(chat), gone...).Err()
	}
	return failure(err, "withdrawing run %s", run)
}

// EraseRuns removes the logs, records and calls of a chat's runs, and what one that waits goes on from: of those in the chat's
// index, and of further ones that the caller knows of. It must run before the
// chat's meta is erased, which holds the index.
func (s *Store) EraseRuns(ctx context.Context, chat memory.Chat, further ...string) error {
	fields, err := s.redis.HKeys(ctx, chatMeta(chat)).Result()
	if err != nil {
		return failure(err, "erasing the runs of chat %s", chat)
	}
	var gone, names []string
	for _, f := range fields {
		if run, ok := strings.CutPrefix(f, "r:"); ok {
			gone, further = append(gone, f), append(further, run)
		} else if name, ok := strings.CutPrefix(f, "d:"); ok && strings.HasPrefix(name, "{") { // of a run
			gone, names = append(gone, f), append(names, name)
		}
	}
	for _, run := range further {
		names = append(names, eventsKey(chat, run), recordKey(chat, run), callsKey(chat, run))
	}
	if _, err = s.forgetWaiting(ctx, chat, 0); err == nil {
		err = s.forget(ctx, chat, names, gone)
	}
	return failure(err, "erasing the runs of chat %s", chat)
}

// forget deletes keys, and then the fields of the chat's meta by which they are found.
func (s *Store) forget(ctx context.Context, chat memory.Chat, names, fields []string) error {
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names { // one by one, since they lie in several slots of a Cluster
			p.Del(ctx, name)
		}
		if len(fields) > 0 {
			p.HDel(ctx, chatMeta(chat), fields...)
		}
		return nil
	})
	return err
}
