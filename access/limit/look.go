package limit

import (
	"context"
	"slices"
	"time"

	"mneme/access"
	"mneme/memory/redisscript"
)

var look = redisscript.New(lua, "books", "look")

// Use is how far a limit of a key is used. Amounts are in the limit's unit, those of money in millionths of a USD.
type Use struct {
	Limit string      `json:"limit"` // as it is configured, such as 20usd/month, 60/m or 8atonce
	Unit  access.Unit `json:"unit"`
	Most  int64       `json:"most"`  // what the limit is
	Spent int64       `json:"spent"` // of a rate: what has not come back yet
	Held  int64       `json:"held"`  // what calls that run may take at most, or how many calls or runs go on
	// Resets is when the budget begins anew, or the rate is unused again if nothing more comes. It is zero for a total,
	// for what is at once, and for a rate that is unused.
	Resets time.Time `json:"resets,omitzero"`
}

// Uses says of each of the keys how far each of its limits is used, budgets first: what Redis has, which a call
// reaches within a second after its end. A limiter without Redis, and a nil one, know nothing of any. Errors are
// memory.ErrUnavailable.
func Uses(ctx context.Context, l *Limiter, keys []access.Key) (all [][]Use, err error) {
	if l == nil || l.redis == nil {
		return make([][]Use, len(keys)), nil
	}
	for some := range slices.Chunk(keys, maxBatch) {
		calls := make([]redisscript.Call, len(some))
		for i, k := range some {
			var text []byte
			var uses []Use
			for _, b := range k.Budget {
				text, uses = bound{budget: b}.append(text), append(uses, Use{Limit: b.String(), Unit: b.Of, Most: b.N})
			}
			for _, r := range k.Rate {
				text, uses = bound{rate: r}.append(text), append(uses, Use{Limit: r.String(), Unit: r.Of, Most: r.N})
			}
			of := Reservation{tenant: k.Tenant}
			args := of.args(mark{}, Amount{}, l.options.Keep, false)
			args[7], args[8] = string(text), holder{kind: "key", name: k.ID}.field()
			calls[i], all = redisscript.Call{Script: look, Keys: of.keys(), Args: args}, append(all, uses)
		}
		for i, cmd := range redisscript.Run(ctx, l.redis, calls...) {
			reply, err := redisscript.Read(cmd)
			if err != nil {
				return nil, redisscript.Unavailable(err)
			}
			uses := all[len(all)-len(some)+i]
			for n := range uses {
				uses[n].Spent, uses[n].Held = number(reply, 3*n), number(reply, 3*n+1)
				if at := number(reply, 3*n+2); at > 0 {
					uses[n].Resets = time.Unix(at, 0).UTC()
				}
			}
		}
	}
	return all, nil
}
