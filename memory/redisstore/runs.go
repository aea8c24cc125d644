package redisstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Runs stores a record, a log and external tool calls of each run. A field r:<run> of the chat's meta is written before
// any of them, so that an erasure finds them. Records are created with set-if-absent, and a log accepts each event
// number once. No turn fences these two, so a holder checks its lease before it writes them. Claims of calls need the
// lease and the turn.
type Runs struct {
	*core
	suspensions Suspensions // removed together with their runs
}

// Record is the stored data of a run. It answers repeated posts and shows where the run's events are.
type Record struct {
	Body string // hash of the post
	// Result is the final answer as JSON, empty while the run is open. If no post can repeat the run, it is an empty
	// object.
	Result []byte
	// Newest is the number of the newest attempt at the post. Only the record of the first attempt has it. 0 means that
	// there is no other attempt.
	Newest int
	// Rewound reports whether the run and its messages were rewound.
	Rewound bool
}

// Done reports whether the run has finished.
func (r *Record) Done() bool { return len(r.Result) > 0 || r.Rewound }

// Torn reports whether the record has only the answer, because Redis lost the run between its last event and its
// answer.
func (r *Record) Torn() bool { return len(r.Result) > 0 && r.Body == "" && !r.Rewound }

// Begin records a run before it is posted. If a record with this id exists, Begin returns it as stored.
func (s Runs) Begin(ctx context.Context, chat memory.Chat, run, body string) (stored *Record, err error) {
	return s.begin(ctx, chat, run, body, true)
}

// BeginUnkeyed is Begin for a post without an Idempotency-Key. No post can repeat the run, so its record lives only as
// long as its events. Other processes find the events through the record.
func (s Runs) BeginUnkeyed(ctx context.Context, chat memory.Chat, run, body string) (stored *Record, err error) {
	return s.begin(ctx, chat, run, body, false)
}

func (s Runs) begin(ctx context.Context, chat memory.Chat, run, body string, keyed bool) (*Record, error) {
	// Write the index first, so that the erasure of the chat finds the run's data.
	life := s.openLife(keyed)
	begin := redisscript.Command(ctx, beginScript, []string{recordKey(chat, run)}, body, int(life.Seconds()), !keyed)
	index := redis.NewIntCmd(ctx, "hset", chatMeta(chat), "r:"+run, s.now().Add(life).UnixMilli())
	r, err := s.inOrder(ctx, beginScript, begin, index, begin)
	if err == nil && r.Word() == "found" {
		return s.Record(ctx, chat, run)
	}
	return nil, failure(err, "noting run %s", run)
}

// Record returns the record of a run, nil if there is none.
func (s Runs) Record(ctx context.Context, chat memory.Chat, run string) (*Record, error) {
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

// Retried records a further attempt at a post in the record of its first run. That record lives as long as the record
// of the newest attempt.
func (s Runs) Retried(ctx context.Context, chat memory.Chat, first, body string, attempt int) error {
	// Write the index first, as in begin.
	life, record := s.openLife(true), recordKey(chat, first)
	err := s.redis.HSet(ctx, chatMeta(chat), "r:"+first, s.now().Add(life).UnixMilli()).Err()
	if err == nil {
		_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
			p.HSet(ctx, record, "body", body, "newest", attempt)
			p.Expire(ctx, record, life)
		})
	}
	return failure(err, "noting attempt %d of run %s", attempt, first)
}

// Finish stores a run's final answer and limits the life of its log.
func (s Runs) Finish(ctx context.Context, chat memory.Chat, run string, result []byte) error {
	finish := redisscript.Command(ctx, finishScript, []string{recordKey(chat, run)},
		result, s.keptLife(true).Milliseconds(), s.keptLife(false).Milliseconds())
	_, err := s.inOrder(ctx, finishScript, finish, finish,
		redis.NewBoolCmd(ctx, "pexpire", eventsKey(chat, run), s.ResumeLife.Milliseconds()))
	return failure(err, "finishing run %s", run)
}

// Withdraw removes a run that was never accepted.
func (s Runs) Withdraw(ctx context.Context, chat memory.Chat, run string) error {
	err := s.redis.Del(ctx, recordKey(chat, run)).Err()
	logged := int64(0) // an earlier run with this id may have lost its record; its log stays indexed
	if err == nil {
		logged, err = s.redis.Exists(ctx, eventsKey(chat, run)).Result()
	}
	stale := []string{}
	if err == nil && logged == 0 {
		stale = append(stale, "r:"+run)
	}
	if err == nil {
		var opening string
		opening, err = s.field(ctx, chatMeta(chat), "begins")
		if strings.HasPrefix(opening, run+".") {
			stale = append(stale, "begins")
		}
	}
	if err == nil && len(stale) > 0 {
		err = s.redis.HDel(ctx, chatMeta(chat), stale...).Err()
	}
	return failure(err, "withdrawing run %s", run)
}
