package recall

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mneme/memory"
)

// cpu is the time that this thread has had of a processor: what a search takes on a quiet machine, about.
func cpu() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Large chats, of 500,000 messages, too, unless -short is given: how long it takes until the newest are found, until
// all are, and how long a search takes then. Searches are beside a plain scan for the same words in the same run: that
// ratio holds on busy machines, and the time of the processor about does.
func BenchmarkLargeChat(b *testing.B) {
	for _, messages := range []int{100_000, 500_000} {
		if messages == 100_000 || !testing.Short() {
			b.Run(fmt.Sprint(messages), func(b *testing.B) { largeChat(b, messages) })
		}
	}
}

func largeChat(b *testing.B, messages int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const segment = 1_000
	raw := conversation(messages)
	decoded, err := memory.Decode(raw)
	if err != nil {
		b.Fatal(err)
	}
	var queries []string
	for i := range 200 {
		words := strings.Fields(decoded[i*(messages/200)].Content)
		queries = append(queries, "what did I say about "+strings.Join(words[5:11], " ")+"?")
	}
	var scans []time.Duration
	for i := range 3 {
		began := cpu()
		found := 0
		for _, m := range decoded {
			for word := range strings.FieldsSeq(queries[i]) {
				if strings.Contains(m.Content, word) {
					found++
				}
			}
		}
		if scans = append(scans, cpu()-began); found == 0 {
			b.Fatal("nothing was found")
		}
	}
	slices.Sort(scans)
	clear(decoded) // it is not of the index
	build := func() (ix *Index, first time.Duration) {
		began := time.Now()
		ix = New(key)
		ix.Append(raw[messages-segment:]...)
		Search([]*Index{ix}, Query{Text: queries[0]})
		first = time.Since(began)
		for end := messages - segment; end > 0; end -= segment {
			ix.Prepend(raw[end-segment : end]...)
		}
		return ix, first
	}
	var ix *Index
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			var first time.Duration
			ix, first = build()
			b.ReportMetric(float64(first.Microseconds())/1000, "ms/first-answer")
			b.ReportMetric(float64(ix.Size())/float64(messages), "bytes/message")
		}
	})
	if ix == nil {
		ix, _ = build()
	}
	search := func(b *testing.B, questions int, q Query) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var times []time.Duration
		for i := 0; b.Loop(); i++ {
			first := i % (len(queries) - questions)
			q.Text = strings.Join(queries[first:first+questions], " ")
			began := cpu()
			Search([]*Index{ix}, q)
			times = append(times, cpu()-began)
		}
		slices.Sort(times)
		p95 := times[len(times)*95/100]
		b.ReportMetric(float64(p95.Microseconds())/1000, "cpu-ms/p95")
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "cpu-ms/median")
		b.ReportMetric(float64(p95)/float64(scans[1]), "p95÷scan")
	}
	b.Run("search", func(b *testing.B) { search(b, 1, Query{}) })
	b.Run("search-4000", func(b *testing.B) { search(b, 1, Query{Budget: 4000}) })
	b.Run("search-bounded", func(b *testing.B) { search(b, 1, Query{From: start.AddDate(0, 0, 20)}) })
	b.Run("search-task", func(b *testing.B) { search(b, 20, Query{}) })
	b.Run("append", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			ix.Append(said("b."+time.Now().String(), memory.RoleUser, queries[i%len(queries)], start))
		}
	})
}

// A chat of 100 messages: what its index takes of memory, as it is and as Size says, and how much of that the messages
// are.
func BenchmarkSmallChat(b *testing.B) {
	const chats, messages = 200, 100
	raw := conversation(chats * messages)
	size := 0
	for _, m := range raw {
		size += len(m)
	}
	heap := func() float64 {
		for range 3 { // what pools hold is collected later than the rest
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		held := make([]*Index, chats)
		for i := range held {
			held[i] = New(key)
			held[i].Append(raw[i*messages : (i+1)*messages]...)
			Search(held[i:i+1], Query{Text: "w7 w40"})
		}
		b.ReportMetric((heap()-before)/chats/1000, "kB/chat")
		b.ReportMetric(float64(held[0].Size())/1000, "kB/chat-as-Size")
		b.ReportMetric(float64(size)/chats/1000, "kB/chat-of-messages")
	}
}
