package bench

import "fmt"

// What the memory is to reach; ratios, so that they hold on any machine.
const (
	reachTime      = 1.3   // time at the largest size ÷ at the smallest
	reachBytes     = 1.1   // bytes at the largest size ÷ at the smallest
	reachEachWay   = 2_048 // bytes to or from Redis
	reachAdvantage = 300.0 // rewriting all's time ÷ ours at the largest size
	reachCold      = 1.5   // cold load ÷ bare GET
	reachCrowded   = 2.0   // time among many chats ÷ among few
)

// judge compares what was measured with what is to be reached.
func (r *Report) judge(sizes []int) {
	small, large := sizes[0], sizes[len(sizes)-1]
	growth := fmt.Sprintf("%s ÷ %s messages", count(large), count(small))
	for _, way := range []string{wayAppend, wayTurn} {
		c := r.cost(way, large)
		r.atMost(way+": time, "+growth, "×", c.OverSmallest, reachTime)
		r.atMost(way+": bytes, "+growth, "×", c.BytesGrowth, reachBytes)
		r.atMost(way+": bytes to Redis", "B", c.ToRedis, reachEachWay)
		r.atMost(way+": bytes from Redis", "B", c.FromRedis, reachEachWay)
	}
	advantage := r.cost(wayRewrite, large).OverOurs
	r.Reaches = append(r.Reaches, Reach{
		What: fmt.Sprintf("rewriting all ÷ %s: time, %s messages", wayAppend, count(large)), Unit: "×",
		Measured: advantage, Limit: "≥ " + number(reachAdvantage), Met: advantage.Median >= reachAdvantage,
	})
	for _, c := range r.Contention {
		if c.Way == writeRewrite {
			continue // stands beside the others for comparison
		}
		kept := float64(c.Kept)
		r.Reaches = append(r.Reaches, Reach{
			What: fmt.Sprintf("%d writers, %s: kept, read as valid JSON at every instant", c.Writers, c.Way), Unit: "messages",
			Measured: Spread{kept, kept, kept}, Limit: fmt.Sprintf("all %s", count(c.Expected)),
			Met: c.Kept == c.Expected && c.Twice == 0 && c.Invalid == 0 && c.Reads > 0,
		})
	}
	r.atMost(fmt.Sprintf("cold load ÷ bare GET: time, %s messages", count(large)), "×", r.cost(wayCold, large).OverGet, reachCold)
	for _, c := range r.Crowded {
		r.atMost(fmt.Sprintf("%s: time, among %s keys ÷ among %s", c.What, count(c.Keys), count(fewChats*keysOfChat)), "×", c.Ratio, reachCrowded)
	}
}

func (r *Report) atMost(what, unit string, measured Spread, limit float64) {
	r.Reaches = append(r.Reaches, Reach{
		What: what, Unit: unit, Measured: measured, Limit: "≤ " + number(limit), Met: measured.Median <= limit,
	})
}

func (r *Report) cost(way string, messages int) Cost {
	for _, c := range r.Costs {
		if c.Way == way && c.Messages == messages {
			return c
		}
	}
	return Cost{}
}
