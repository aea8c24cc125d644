package backup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/redisstore"
)

// ClientName is what mneme's services call their connections, so that a restore
// sees that they run.
const ClientName = "mneme"

// openLogLife is how long the log of a run that was open lives behind a restore: the
// process that finishes the run needs it, however old the backup is.
const openLogLife = 25 * time.Minute

// Spool copies in into a file without a name, in dir or else where the system keeps
// temporary files: what is restored is read twice, first to know that it is whole, and a
// stream can be read only once.
func Spool(in io.Reader, dir string) (*os.File, error) {
	f, err := os.CreateTemp("", "mneme-restore-")
	if err != nil { // a container without a writable /tmp
		if f, err = os.CreateTemp(dir, "restore-"); err != nil {
			return nil, err
		}
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = io.Copy(f, in)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Verify reads a backup from beginning to end without restoring anything. An error
// says what is wrong with the file.
func Verify(in io.Reader) (Summary, error) {
	var summary Summary
	created, err := read(in, func(r record) error { summary.count(r); return nil })
	summary.Created = created
	return summary, err
}

// Holds names a key of mneme's that a store holds, empty if there is none but what
// a backup leaves out.
func Holds(ctx context.Context, client redis.UniversalClient) (key string, err error) {
	servers, err := nodes(ctx, client)
	if err != nil {
		return "", err
	}
	for p, err := range pages(ctx, servers, "*") {
		if err != nil {
			return "", err
		}
		for _, k := range p.keys {
			if r := roleOf(k); r != foreign && r != live {
				return k, nil
			}
		}
	}
	return "", nil
}

// leases is the pattern of the keys of all leases.
var leases = memory.RedisKey{Kind: memory.KindLease, Key: memory.ChatKey(memory.AnyChat)}.String()

// InUse says what uses a Redis as mneme's services do, empty if there are no signs of
// use: connections under their name, or the lease of a chat.
func InUse(ctx context.Context, client redis.UniversalClient) (string, error) {
	servers, err := nodes(ctx, client)
	if err != nil {
		return "", err
	}
	for _, n := range servers {
		clients, err := n.Do(ctx, "CLIENT", "LIST").Text()
		if err != nil {
			continue // not allowed to see them
		}
		for line := range strings.Lines(clients) {
			if strings.Contains(line, " name="+ClientName+" ") {
				_, addr, _ := strings.Cut(line, " addr=")
				addr, _, _ = strings.Cut(addr, " ")
				return "a service of mneme is connected to it from " + addr, nil
			}
		}
	}
	for p, err := range pages(ctx, servers, leases) {
		if err != nil {
			return "", err
		}
		return "a chat is being written to (" + p.keys[0] + ")", nil
	}
	return "", nil
}

// Restore writes a backup, which Verify must have read before, in place of
// everything of mneme's that the store holds. Keys that are not mneme's stay. No
// service may use the store meanwhile: it could write what it has cached over what
// was restored.
func Restore(ctx context.Context, client redis.UniversalClient, in io.Reader, tell Progress) (Summary, error) {
	r := &restorer{client: client, pipe: client.Pipeline(), tell: tell, openChats: map[memory.Chat]bool{},
		openLogs: map[string]bool{}}
	if err := r.wipe(ctx); err != nil {
		return r.done, fmt.Errorf("removing what was there before: %w", err)
	}
	created, err := read(in, func(rec record) error { return r.put(ctx, rec) })
	if err == nil {
		// The last thing: a process that cached something of another epoch learns from this that it is void.
		r.pipe.Set(ctx, string(memory.KindEpoch), rand.Text(), 0)
		err = r.flush(ctx)
	}
	r.done.Created = created
	return r.done, err
}

// restorer writes records.
type restorer struct {
	client redis.UniversalClient
	pipe   redis.Pipeliner
	size   int // bytes in pipe
	tell   Progress
	done   Summary

	openChats map[memory.Chat]bool // chats with a run that was open
	openLogs  map[string]bool      // keys of the logs of those runs
}

// wipe removes every key of mneme's.
func (r *restorer) wipe(ctx context.Context) error {
	servers, err := nodes(ctx, r.client)
	if err != nil {
		return err
	}
	for p, err := range pages(ctx, servers, "*") {
		if err != nil {
			return err
		}
		for _, k := range p.keys {
			if roleOf(k) != foreign {
				r.pipe.Unlink(ctx, k)
			}
		}
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// put writes one record.
func (r *restorer) put(ctx context.Context, rec record) error {
	r.done.count(rec)
	if r.openLogs[rec.Key] {
		rec.Expires = time.Now().Add(openLogLife).UnixMilli()
	}
	if rec.Expires > 0 && rec.Expires <= time.Now().UnixMilli() {
		return nil
	}
	if !rec.Continued {
		r.pipe.Del(ctx, rec.Key)
	}
	if rec.Type == isString {
		r.pipe.Set(ctx, rec.Key, string(rec.Value), 0)
	}
	r.size += len(rec.Value)
	r.rows(ctx, rec)
	r.open(ctx, rec)
	if rec.Expires > 0 && rec.Type != isNone {
		r.pipe.PExpireAt(ctx, rec.Key, time.UnixMilli(rec.Expires))
	}
	if r.size < recordBytes && r.pipe.Len() < pipedAtOnce {
		return nil
	}
	r.tell(r.done)
	return r.flush(ctx)
}

// rows adds the rows of a record to its key.
func (r *restorer) rows(ctx context.Context, rec record) {
	var values []any
	for _, row := range rec.Rows {
		var args []any
		for _, t := range row {
			args = append(args, string(t))
			r.size += len(t)
		}
		if rec.Type == isStream {
			r.pipe.Do(ctx, append([]any{"XADD", rec.Key}, args...)...)
		}
		values = append(values, args...)
	}
	command := map[kind]string{isHash: "HSET", isSet: "SADD", isZSet: "ZADD"}[rec.Type]
	if command != "" && len(values) > 0 {
		r.pipe.Do(ctx, append([]any{command, rec.Key}, values...)...)
	}
}

// open puts a chat with an open run on the list of those, as one without a lease's
// holder: the first webmemory that looks brings the run to its end.
func (r *restorer) open(ctx context.Context, rec record) {
	k, _ := memory.ParseRedisKey(rec.Key)
	if k.Kind != memory.KindMeta || k.Key.Agent() != "" {
		return
	}
	chat, openRuns := k.Key.Chat(), string(memory.KindOpenRuns)
	if r.openChats[chat] { // of a record of this meta before: the chat was erased while the backup was made
		r.pipe.ZRem(ctx, openRuns, chat.String())
	}
	for _, row := range rec.Rows {
		var run redisstore.OpenRun
		if row[0] == "open" && json.Unmarshal([]byte(row[1]), &run) == nil {
			r.pipe.ZAdd(ctx, openRuns, redis.Z{Member: chat.String()})
			r.openChats[chat] = true
			r.openLogs[memory.RedisKey{Kind: memory.KindEvents, Key: k.Key, Run: run.Run}.String()] = true
		}
	}
}

// flush sends what waits.
func (r *restorer) flush(ctx context.Context) error {
	if r.pipe.Len() == 0 {
		return nil
	}
	commands, _ := r.pipe.Exec(ctx) // each command keeps its own error
	r.size = 0
	for _, c := range commands {
		// An entry that is there already: the commands were sent twice, since the first answer was lost.
		if c.Err() != nil && !strings.Contains(c.Err().Error(), "equal or smaller") {
			return c.Err()
		}
	}
	return nil
}
