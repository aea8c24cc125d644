package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"

	"mneme/scripts/lab"
)

// The key of the turns that are limited, and six limits that none of them meets.
const (
	limitedKey             = "mn_bench_0123456789abcdefghijklmnopqrstuv"
	manyAtATime, muchInAll = "100000000/m,100000000000tokens/m", "100000000000tokens/month"
)

// limits compares turns with a key, rates and budgets with turns of services without keys, in one run.
func (c *turnCmd) limits(l *lab.Lab, v *lab.Vendor) {
	free := l.Services(v, true)
	l.Settings = fmt.Sprintf(`auth: {mode: keys, keys_file: %s}
limits:
  tenants: {acme: {rate: "%[2]s", budget: "%[3]s"}}
  users: {rate: "%[2]s", budget: "%[3]s"}
`, l.File("keys.yaml", fmt.Sprintf("keys:\n- {id: bench, tenant: acme, scopes: [chat], rate: %q, budget: %q, hash: %x}\n",
		manyAtATime, muchInAll, sha256.Sum256([]byte(limitedKey)))), manyAtATime, muchInAll)
	limited := l.Replica(free, v, true)
	ways := []*way{{name: "limited", url: limited.URL, pids: limited.Pids, key: limitedKey, user: "ann"},
		{name: "free", url: free.URL, pids: free.Pids, user: "ann"}}
	ctx := context.Background()
	ways[1].turns(50)
	kept := len(lab.Must(free.Redis.Keys(ctx, "mneme:limits*").Result()))
	ways[0].turns(50)
	var redis [2]float64
	for range c.Rounds {
		for i, w := range ways {
			before, used := lab.Info(free.Redis), lab.CPU(w.pids...)
			w.turns(c.Turns)
			w.cpu = append(w.cpu, ms(lab.CPU(w.pids...)-used)/float64(c.Turns))
			redis[i] += (lab.Info(free.Redis)[0] - before[0]) / float64(c.Turns*c.Rounds)
		}
	}
	fmt.Printf("a turn with a key and six limits beside one without; %d rounds of %d turns, medians\n", c.Rounds, c.Turns)
	const watched = 50
	for i, w := range ways {
		sent, scripted := free.Monitor(func() { w.turns(watched) })
		all := 0
		for _, n := range sent {
			all += n
		}
		fmt.Printf("  %-7s CPU %.2f ms (%.2f–%.2f), Redis CPU %.2f ms, commands sent %.1f, called by scripts %.1f\n", w.name,
			quantile(w.cpu, .5), quantile(w.cpu, 0), quantile(w.cpu, 1), redis[i], float64(all)/watched,
			float64(scripted)/watched)
	}
	pairs := make([]float64, c.Rounds)
	for i := range pairs {
		pairs[i] = ways[0].cpu[i] / ways[1].cpu[i]
	}
	fmt.Printf("  limited ÷ free: CPU %.2f ×, by rounds %.2f–%.2f; keys of limits in Redis after turns without: %d\n",
		quantile(pairs, .5), quantile(pairs, 0), quantile(pairs, 1), kept)
}

// post is http.Post with a key, if there is one.
func post(url, key, body string) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	return http.DefaultClient.Do(r)
}
