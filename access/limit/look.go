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
	Limit    string      `json:"limit"` // as it is configured, such as 20usd/month, 60/m or 8atonce
	Unit     access.Unit `json:"unit"`
	Most     int64       `json:"most"`  // the limit
	Spent    int64       `json:"spent"` // for a rate: the part that is still in use
	Reserved int64       `json:"held"`  // what calls that run may take at most, or how many calls or runs go on
	// Resets is when the budget begins anew, or the rate is unused again if nothing more comes. It is zero for a total,
	// for what is at once, and for a rate that is unused.
	Resets time.Time `json:"resets,omitzero"`
}

// Uses says of each of the keys how far each of its limits is used, budgets first: what Redis has, which a call
// reaches within a second after its end. A limiter without Redis, and a nil one, know nothing of any. Errors are
// memory.ErrUnavailable.
func Uses(ctx context.Context, l *Limiter, keys []access.Key) (perKey [][]Use, err error) {
	if l == nil || l.redis == nil {
		return make([][]Use, len(keys)), nil
	}
	for chunk := range slices.Chunk(keys, maxBatch) {
		calls := make([]redisscript.Call, len(chunk))
		for i, k := range chunk {
			var text []byte
			var uses []Use
			for _, b := range k.Budget {
				text, uses = bound{budget: b}.append(text), append(uses, Use{Limit: b.String(), Unit: b.Unit, Most: b.N})
			}
			for _, r := range k.Rate {
				text, uses = bound{rate: r}.append(text), append(uses, Use{Limit: r.String(), Unit: r.Unit, Most: r.N})
			}
			reservation := Reservation{tenant: k.Tenant}
			args := reservation.args(mark{}, Amount{}, l.options.Keep, false)
			args[7], args[8] = string(text), holder{kind: "key", name: k.ID}.field()
			calls[i], perKey = redisscript.Call{Script: look, Keys: reservation.keys(), Args: args}, append(perKey, uses)
		}
		for i, cmd := range redisscript.Run(ctx, l.redis, calls...) {
			reply, err := redisscript.Read(cmd)
			if err != nil {
				return nil, redisscript.Unavailable(err)
			}
			uses := perKey[len(perKey)-len(chunk)+i]
			for n := range uses {
				uses[n].Spent, uses[n].Reserved = number(reply, 3*n), number(reply, 3*n+1)
				if reset := number(reply, 3*n+2); reset > 0 {
					uses[n].Resets = time.Unix(reset, 0).UTC()
				}
			}
		}
	}
	return perKey, nil
}
