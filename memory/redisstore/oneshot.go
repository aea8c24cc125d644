package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// OneShots is about runs without a chat that wait for their client's tools. It keeps what such a run goes on from, its
// calls, and a list of each tenant's. There is no lease: a call is claimed by set-if-absent, however many processes go
// on with the run.
type OneShots struct{ *core }

// OneShotLife is how long a run without a chat is kept that waits for its client's tools.
const OneShotLife = time.Hour

// Save keeps what a run without a chat goes on from, for OneShotLife.
func (s OneShots) Save(ctx context.Context, of memory.Tenant, run string, state []byte) error {
	if err := s.list(ctx, of, run); err != nil {
		return failure(err, "listing the one-shot %s", run)
	}
	return failure(s.redis.Set(ctx, oneShotKey(of, run), state, OneShotLife).Err(), "keeping the one-shot %s", run)
}

// State gives what Save kept, and keeps it for another OneShotLife; nil if there is no such run, or not any
// more.
func (s OneShots) State(ctx context.Context, of memory.Tenant, run string) ([]byte, error) {
	if err := s.list(ctx, of, run); err != nil { // as long as processes go on with it
		return nil, failure(err, "listing the one-shot %s", run)
	}
	var state *redis.StringCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		state = p.Get(ctx, oneShotKey(of, run))
		p.Expire(ctx, oneShotKey(of, run), OneShotLife)
		p.Expire(ctx, oneShotCallsKey(of, run), OneShotLife)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return []byte(state.Val()), failure(err, "reading the one-shot %s", run)
}

// The calls of a run without a chat are a hash, as those of a chat's run: a call under its id, and its result under
// that and ":result".

// Claim is [Runs.Claim] for a run that Save has kept, however many processes go on with it. memory.ErrMoved:
// it is not kept any more.
func (s OneShots) Claim(
	ctx context.Context, of memory.Tenant, run, id string, c Call, repeatable bool,
) (word string, result []byte, err error) {
	record, err := json.Marshal(c)
	if err != nil {
		return "", nil, err
	}
	kept, err := s.redis.Expire(ctx, oneShotKey(of, run), OneShotLife).Result()
	if err == nil && !kept {
		err = memory.ErrMoved
	}
	if err != nil {
		return "", nil, failure(err, "claiming a call of the one-shot %s", run)
	}
	key := oneShotCallsKey(of, run)
	var granted *redis.BoolCmd
	var done *redis.StringCmd
	_, err = s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		granted, done = p.HSetNX(ctx, key, id, record), p.HGet(ctx, key, id+":result")
		p.Expire(ctx, key, OneShotLife)
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return "", nil, failure(err, "claiming a call of the one-shot %s", run)
	case done.Err() == nil:
		return CallDone, []byte(done.Val()), nil
	case granted.Val() || repeatable:
		return CallGranted, nil, nil
	}
	return CallUnknown, nil, nil
}

// Settle is [Runs.Settle] for a call of Claim.
func (s OneShots) Settle(ctx context.Context, of memory.Tenant, run, id string, result []byte) (bool, error) {
	key := oneShotCallsKey(of, run)
	granted, err := s.redis.HExists(ctx, key, id).Result()
	if err == nil && granted {
		err = s.redis.HSetNX(ctx, key, id+":result", result).Err()
	}
	return granted, failure(err, "keeping the result of a call of the one-shot %s", run)
}

func oneShotKey(of memory.Tenant, run string) string {
	return memory.OneShotKey(memory.KindOneShot, of, run)
}

func oneShotCallsKey(of memory.Tenant, run string) string {
	return memory.OneShotKey(memory.KindOneShotCalls, of, run)
}

// oneShotsKept is for how long a run without a chat stays in the tenant's list: far longer than one is kept that
// no process goes on with.
const oneShotsKept = 24 * OneShotLife

// Erase erases up to count runs of a tenant without a chat that wait, and says how many, and how many are left.
func (s OneShots) Erase(ctx context.Context, of memory.Tenant, count int) (gone, left int, err error) {
	list := memory.ListKey(memory.KindOneShots, of)
	runs, all, err := s.front(ctx, list, count)
	if err == nil && len(runs) > 0 {
		_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, run := range runs {
				p.Unlink(ctx, oneShotKey(of, run))
				p.Unlink(ctx, oneShotCallsKey(of, run))
			}
			return nil
		})
		if err == nil { // the list last, which leads to them, see core.forget
			err = s.redis.ZRem(ctx, list, runs).Err()
		}
	}
	return len(runs), all - len(runs), failure(err, "erasing the one-shots of the tenant %s", of)
}

// list brings a run without a chat into the tenant's list, before it is kept, and takes out those that are not
// kept any more.
func (s OneShots) list(ctx context.Context, of memory.Tenant, run string) error {
	if (of == memory.Tenant{}) {
		return nil
	}
	list := memory.ListKey(memory.KindOneShots, of)
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, list, redis.Z{Score: s.deadline(0), Member: run})
		p.ZRemRangeByScore(ctx, list, "-inf", strconv.FormatInt(s.now().Add(-oneShotsKept).UnixMilli(), 10))
		return nil
	})
	return err
}
