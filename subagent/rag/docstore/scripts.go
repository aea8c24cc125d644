package docstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/create.lua
var createSource string

//go:embed lua/put.lua
var putSource string

//go:embed lua/delete.lua
var deleteSource string

//go:embed lua/drop.lua
var dropSource string

//go:embed lua/list.lua
var listSource string

//go:embed lua/vectors.lua
var vectorsSource string

var (
	createScript  = redis.NewScript(createSource)
	putScript     = redis.NewScript(putSource)
	deleteScript  = redis.NewScript(deleteSource)
	dropScript    = redis.NewScript(dropSource)
	listScript    = redis.NewScript(listSource)
	vectorsScript = redis.NewScript(vectorsSource)
)

// reply is what a script returns: a word, and what belongs to it.
type reply []string

func (r reply) at(i int) string {
	if i >= len(r) {
		return ""
	}
	return r[i]
}

// read turns a script's result into a reply. Whatever Redis says instead of one
// of our words means that it could not serve us.
func read(cmd *redis.Cmd) (reply, error) {
	values, err := cmd.Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	r := make(reply, len(values))
	for i, v := range values {
		if text, ok := v.(string); ok {
			r[i] = text
		}
	}
	switch r.at(0) {
	case "":
		return nil, fmt.Errorf("%w: it gave an empty reply", ErrUnavailable)
	case "missing":
		return nil, ErrNoCollection
	}
	return r, nil
}

func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// missing says that Redis does not know a script: a restart or a failover
// emptied its cache.
func missing(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// runAll runs a script over a collection once for each of the arguments, nil for
// none, in one round trip.
func (s *Store) runAll(ctx context.Context, script *redis.Script, c Collection, args [][]any) []*redis.Cmd {
	cmds := make([]*redis.Cmd, len(args))
	for range 2 { // the second time for those that did not find the script
		again := false
		_, _ = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error { // each command keeps its own error
			for i, a := range args {
				if a != nil && (cmds[i] == nil || missing(cmds[i].Err())) {
					cmds[i] = script.EvalSha(ctx, p, c.keys(), a...)
				}
			}
			return nil
		})
		for _, cmd := range cmds {
			again = again || cmd != nil && missing(cmd.Err())
		}
		if !again || script.Load(ctx, s.redis).Err() != nil {
			break
		}
	}
	return cmds
}

// number reads a number that Redis keeps; 0 for what somebody made of it by hand.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
