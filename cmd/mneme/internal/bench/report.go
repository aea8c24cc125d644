package bench

import (
	"slices"
	"time"
)

// Report is what a run measured.
type Report struct {
	Date       time.Time    `json:"date"`
	Redis      string       `json:"redis_version"`
	OwnServer  bool         `json:"own_server"` // started for the run, so nobody else used it
	Go         string       `json:"go_version"`
	Platform   string       `json:"platform"`
	CPUs       int          `json:"cpus"`
	Runs       int          `json:"runs"`
	Appended   int          `json:"appended_bytes"` // of the two messages that a turn appends
	Costs      []Cost       `json:"costs"`
	Contention []Contention `json:"contention"`
	Crowded    []Crowded    `json:"crowded"` // empty if it was not measured
	Reaches    []Reach      `json:"reaches"`
}

// Spread sums up one number over all runs.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spread(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// Cost is one way to do a thing with a history of one size. Ratios are taken
// within each run and summed up then.
type Cost struct {
	Way          string `json:"way"`
	Messages     int    `json:"messages"`
	Stored       int64  `json:"stored_bytes"` // of the array
	Micros       Spread `json:"microseconds"`
	ToRedis      Spread `json:"bytes_to_redis"`
	FromRedis    Spread `json:"bytes_from_redis"`
	OverSmallest Spread `json:"time_over_smallest"` // time ÷ that of the smallest size
	BytesGrowth  Spread `json:"bytes_over_smallest"`
	OverOurs     Spread `json:"time_over_append"` // time ÷ that of proving and appending at this size
	OverGet      Spread `json:"time_over_get"`    // time ÷ that of a bare GET at this size
}

func newCost(way string, b *bed, own, smallest, ours, get []sample) Cost {
	over := func(of func(sample) float64, others []sample) Spread {
		ratios := make([]float64, len(own))
		for run := range own {
			ratios[run] = of(own[run]) / of(others[run])
		}
		return spread(ratios)
	}
	each := func(of func(sample) float64) Spread {
		values := make([]float64, len(own))
		for run := range own {
			values[run] = of(own[run])
		}
		return spread(values)
	}
	return Cost{
		Way: way, Messages: b.messages, Stored: b.size,
		Micros: each(sample.time), ToRedis: each(sample.in), FromRedis: each(sample.out),
		OverSmallest: over(sample.time, smallest), BytesGrowth: over(sample.traffic, smallest),
		OverOurs: over(sample.time, ours), OverGet: over(sample.time, get),
	}
}

func (s sample) time() float64    { return s.micros }
func (s sample) in() float64      { return s.toRedis }
func (s sample) out() float64     { return s.fromRedis }
func (s sample) traffic() float64 { return s.toRedis + s.fromRedis }

// Contention is what became of messages that many writers appended at once.
type Contention struct {
	Way          string  `json:"way"`
	Writers      int     `json:"writers"`
	Turns        int     `json:"turns"` // of each writer
	Expected     int     `json:"messages_expected"`
	Kept         int     `json:"messages_kept"`
	Twice        int     `json:"messages_stored_twice"`
	Reads        int     `json:"reads_meanwhile"`
	Invalid      int     `json:"reads_of_invalid_json"`
	Stale        int64   `json:"appends_repeated"`
	Retried      int64   `json:"appends_refused_and_retried"`
	Milliseconds float64 `json:"milliseconds"`
}

// Crowded is what something that concerns one chat costs beside many others. Ratios
// are taken within each run and summed up then.
type Crowded struct {
	What  string `json:"what"`
	Keys  int    `json:"other_keys"` // in the database of many
	Few   Spread `json:"milliseconds_among_few"`
	Many  Spread `json:"milliseconds_among_many"`
	Ratio Spread `json:"many_over_few"`
}

// Reach is one aim and whether this run met it.
type Reach struct {
	What     string `json:"what"`
	Unit     string `json:"unit"` // "×", "B" or "messages"
	Measured Spread `json:"measured"`
	Limit    string `json:"reach"`
	Met      bool   `json:"met"` // by the median
}
