package app

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mneme/access"
	"mneme/access/limit"
)

// maxKeysSeen bounds the keys in the metrics: those that were used last.
const maxKeysSeen = 200

// keyGauges are the metrics of a limit of a key: what it is, what is spent of it, what is held, when it resets. Names
// of keys are a person's words and need not differ, so that the label is the id.
var keyGauges = [4]*prometheus.Desc{
	keyGauge("mneme_key_limit", "Limits of keys, in their unit, with money in USD."),
	keyGauge("mneme_key_limit_spent", "What is spent of limits of keys."),
	keyGauge("mneme_key_limit_held", "What calls that run hold of limits of keys, or how many calls or runs go on."),
	keyGauge("mneme_key_limit_resets_seconds", "When limits of keys are unused again, in seconds of Unix time."),
}

func keyGauge(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"key", "unit", "per"}, nil)
}

// keyUses are the metrics of how far limits of keys are used. They are read from Redis when they are asked for, and
// once in access.Fresh at most, since whoever reaches the port may ask.
type keyUses struct {
	keys    *access.Store // nil where nobody is asked for a key
	limiter *limit.Limiter

	mu     sync.Mutex // guards what follows
	cached []prometheus.Metric
	next   time.Time // until then kept is given again
}

// Describe is of a prometheus.Collector.
func (u *keyUses) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range keyGauges {
		ch <- desc
	}
}

// Collect is of a prometheus.Collector. While Redis does not answer there are none.
func (u *keyUses) Collect(ch chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keys != nil && !time.Now().Before(u.next) {
		u.cached, u.next = u.read(), time.Now().Add(access.Fresh)
	}
	for _, one := range u.cached {
		ch <- one
	}
}

func (u *keyUses) read() (out []prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	keys, err := u.keys.List(ctx)
	keys = slices.DeleteFunc(keys, func(k access.Key) bool { return k.Empty() || !k.Revoked.IsZero() })
	slices.SortStableFunc(keys, func(a, b access.Key) int { return b.Used.Compare(a.Used) })
	keys = keys[:min(len(keys), maxKeysSeen)]
	uses, errUses := limit.Uses(ctx, u.limiter, keys)
	if err != nil || errUses != nil {
		return nil
	}
	for i, k := range keys {
		for _, use := range uses[i] {
			_, per, _ := strings.Cut(use.Limit, "/")
			for n, value := range [4]int64{use.Most, use.Spent, use.Reserved, use.Resets.Unix()} {
				in := float64(value)
				if n < 3 && use.Unit == access.USD {
					in /= access.MicrosPerUSD
				}
				if n < 3 || !use.Resets.IsZero() {
					out = append(out, prometheus.MustNewConstMetric(keyGauges[n], prometheus.GaugeValue, in, k.ID,
						string(use.Unit), per))
				}
			}
		}
	}
	return out
}
