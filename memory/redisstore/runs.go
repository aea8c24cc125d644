package redisstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisscript"
)

// Runs is about the runs of chats. It keeps a record of each, its log, and its calls of tools outside; in the chat's
// meta stands a field r:<run> before any of them is written, by which they are found when they are to go. A record is
// made by set-if-absent, and a log takes each number of an event once: neither is fenced by a turn, so a holder asks
// its lease before it writes them. Calls are claimed under lease and turn.
type Runs struct {
	*core
	suspensions Suspensions // which go with their runs
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

// Done says whether the run has come to its end.
func (r *Record) Done() bool { return len(r.Result) > 0 || r.Rewound }

// Torn reports whether the record has only the answer, because Redis lost the run between its last event and its answer.
func (r *Record) Torn() bool { return len(r.Result) > 0 && r.Body == "" && !r.Rewound }

// Begin notes that a run exists, before it is posted; found is the record of a
// run with this id that is there already.
func (s Runs) Begin(ctx context.Context, chat memory.Chat, run, body string) (stored *Record, err error) {
	return s.begin(ctx, chat, run, body, true)
}

// BeginUnkeyed is Begin for a post without an Idempotency-Key. No post can repeat it,
// so its record lives only as long as its events, which other processes find by it.
func (s Runs) BeginUnkeyed(ctx context.Context, chat memory.Chat, run, body string) (stored *Record, err error) {
	return s.begin(ctx, chat, run, body, false)
}

func (s Runs) begin(ctx context.Context, chat memory.Chat, run, body string, keyed bool) (*Record, error) {
	// The index first: what is kept of a run must be found when the chat is erased.
	life := s.openLife(keyed)
	begin := redisscript.Command(ctx, beginScript, []string{recordKey(chat, run)}, body, int(life.Seconds()), !keyed)
	index := redis.NewIntCmd(ctx, "hset", chatMeta(chat), "r:"+run, s.now().Add(life).UnixMilli())
	r, err := s.inOrder(ctx, beginScript, begin, index, begin)
	if err == nil && r.Word() == "found" {
		return s.Record(ctx, chat, run)
	}
	return nil, failure(err, "noting run %s", run)
}

// Record is what is known of a run; nil if nothing is.
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

// Retried notes in the record of a first run that there is a further attempt at
// the same post. The record lives as long as that of the newest attempt.
func (s Runs) Retried(ctx context.Context, chat memory.Chat, first, body string, attempt int) error {
	// As in begin, the index first.
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

// Finish keeps a run's final answer, and bounds the life of its log.
func (s Runs) Finish(ctx context.Context, chat memory.Chat, run string, result []byte) error {
	finish := redisscript.Command(ctx, finishScript, []string{recordKey(chat, run)},
		result, s.keptLife(true).Milliseconds(), s.keptLife(false).Milliseconds())
	_, err := s.inOrder(ctx, finishScript, finish, finish,
		redis.NewBoolCmd(ctx, "pexpire", eventsKey(chat, run), s.ResumeLife.Milliseconds()))
	return failure(err, "finishing run %s", run)
}

// Withdraw forgets a run that was never accepted.
func (s Runs) Withdraw(ctx context.Context, chat memory.Chat, run string) error {
	err := s.redis.Del(ctx, recordKey(chat, run)).Err()
	logged := int64(0) // of an earlier run with this id that has lost its record: it stays in the index
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
