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

// BenchmarkCall is what a call with six limits costs beside the call itself, of many that come at once: one round trip
// that is waited for, and a part of one in the background. It shows the CPU time of this process, without Redis's, and
// that of a call without limits.
func BenchmarkCall(b *testing.B) {
	rate, err := access.ParseRates("100000000/m,100000000000tokens/m")
	require.NoError(b, err)
	budget, err := access.ParseBudgets("100000000000tokens/month")
	require.NoError(b, err)
	limits := access.Limits{Rate: rate, Budget: budget}
	for name, p := range map[string]access.Principal{
		"with":    {Key: "k1", Limits: limits},
		"without": {},
	} {
		b.Run(name, func(b *testing.B) {
			o := limit.Options{}
			if name == "with" {
				o.Tenants = map[string]access.Limits{"default": limits}
			}
			l := limit.New(redistest.Start(b).Client(), o)
			b.ResetTimer()
			before := cpu(b)
			var next atomic.Int64
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, err := l.Reserve(b.Context(), p, fmt.Sprint(next.Add(1)), tokens(100))
					if err != nil {
						b.Error(err)
					}
					r.Commit(tokens(10))
				}
			})
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
