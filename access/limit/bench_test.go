package limit_test

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/limit"
	"mneme/internal/redistest"
)

// BenchmarkCall is what a call with six limits costs beside the call itself: one round trip that is waited for, and one
// in the background, or parts of them for one of many that come at once. It shows the CPU time of this process, without
// Redis's, of one of many, of one after the other (alone), and of a call without limits.
func BenchmarkCall(b *testing.B) {
	rate, err := access.ParseRates("100000000/m,100000000000tokens/m")
	require.NoError(b, err)
	budget, err := access.ParseBudgets("100000000000tokens/month")
	require.NoError(b, err)
	limits := access.Limits{Rate: rate, Budget: budget}
	limited := access.Principal{Key: "k1", Limits: limits}
	for name, p := range map[string]access.Principal{"with": limited, "alone": limited, "without": {}} {
		b.Run(name, func(b *testing.B) {
			o := limit.Options{}
			if name != "without" {
				o.Tenants = map[string]access.Limits{"default": limits}
			}
			l := limit.New(redistest.Start(b).Client(), o)
			b.ResetTimer()
			before := cpu(b)
			var next atomic.Int64
			call := func() {
				r, err := l.Reserve(b.Context(), p, fmt.Sprint(next.Add(1)), tokens(100))
				if err != nil {
					b.Error(err)
				}
				l.Charge(r, tokens(10))
			}
			if name == "alone" {
				for range b.N {
					call()
				}
			} else {
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						call()
					}
				})
			}
			require.NoError(b, l.Close())
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N)/1000, "cpu-µs/op")
		})
	}
}

// cpu is the CPU time of this process in ns.
func cpu(b *testing.B) int64 {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return used.Utime.Nano() + used.Stime.Nano()
}
