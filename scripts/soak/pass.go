package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mneme/apiserver/api"
)

// verdict is what became of a body.
type verdict string

const (
	whole   verdict = "whole and equal"
	left    verdict = "left by its client on purpose"
	broken  verdict = "visibly broken off"
	unheard verdict = "broken off before its head"
	refused verdict = "refused with a clear 503"
	differs verdict = "DIFFERENT, and ended as complete"
	endless verdict = "without an end for ten minutes"
	strange verdict = "answered in another way"
)

// passing is a soak of bodies while it runs.
type passing struct {
	*trial
	asks  []ask
	begun atomic.Int64 // bodies that were asked for
}

const ofWhole, ofKills = "MB of whole bodies", "kills of the apiserver"

func pass(ctx context.Context, t *trial) (clean bool, err error) {
	p, server := &passing{trial: t}, t.services[apiName]
	if err := p.prepare(ctx, "http://"+server.addr); err != nil {
		return false, err
	}
	watching, unwatch := context.WithCancel(ctx)
	var around, clients sync.WaitGroup
	around.Go(func() {
		for sleep(watching, 15*time.Second) {
			fmt.Fprintf(p.out, "%6v  %d bodies, %d MB, %d kills, %d of them different\n",
				time.Since(p.began).Round(time.Second), min(p.begun.Load(), p.bodies), p.counted(ofWhole)>>20,
				p.counted(ofKills), p.counted(string(differs)))
		}
	})
	rng := p.random(1 << 32)
	around.Go(func() {
		for p.fault == faultKill && sleep(watching, min(time.Duration(rng.ExpFloat64()*float64(p.every)), 4*p.every)) {
			server.Kill()
			p.count(ofKills, 1)
			if server.start() == nil {
				_ = server.Await(time.Minute) // or the answers stay 503, which is said in the end
			}
		}
	})
	for i := range p.clients {
		t := &taker{passing: p, rng: p.random(uint64(i)), slow: i%6 == 5}
		t.http.Transport = t.transport()
		clients.Go(func() {
			for p.begun.Add(1) <= p.bodies && ctx.Err() == nil {
				t.take(ctx, p.asks[t.rng.IntN(len(p.asks))])
			}
		})
	}
	clients.Wait()
	unwatch()
	around.Wait()
	if p.counts[string(whole)] == 0 {
		p.find("not one body came whole")
	}
	p.counts[ofWhole] >>= 20
	return p.report(string(whole), string(left), string(broken), string(unheard), string(refused), string(differs),
		string(endless), string(strange), ofWhole, ofKills), nil
}

// taker is a client that reads answers through webmemory.
type taker struct {
	*passing
	rng  *rand.Rand
	slow bool
	http http.Client
}

// transport is one of a slow client if it is: the kernel does not read ahead for it.
func (t *taker) transport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if tcp, ok := conn.(*net.TCPConn); ok && t.slow {
				_ = tcp.SetReadBuffer(64 << 10)
			}
			return conn, err
		}}
}

// take asks for an answer, reads it and counts what became of it.
func (t *taker) take(ctx context.Context, a ask) {
	bounded, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	what, note := t.read(bounded, a)
	if ctx.Err() != nil {
		return // it was cut by our own end
	}
	if bounded.Err() != nil {
		what = endless
	}
	allowed := what == whole || what == left
	if t.fault == faultKill {
		allowed = allowed || what == broken || what == unheard || what == refused
	}
	t.count(string(what), 1)
	if what == whole {
		t.count(ofWhole, a.size)
	}
	if !allowed {
		t.find("%s %s %s, %d bytes of body: %s: %s", stamp(time.Now()), a.method, a.path, len(a.body), what, note)
	}
}

func (t *taker) read(ctx context.Context, a ask) (v verdict, note string) {
	resp, err := a.send(ctx, &t.http, "http://"+t.webAddr)
	if err != nil {
		return unheard, err.Error()
	}
	defer resp.Body.Close()
	if t.rng.IntN(50) == 0 {
		_, _ = io.CopyN(io.Discard, resp.Body, int64(t.rng.IntN(a.size)))
		return left, ""
	}
	body := io.Reader(resp.Body)
	if t.slow && t.rng.IntN(4) == 0 {
		body = &slowly{Reader: body, rests: 50}
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return broken, fmt.Sprintf("%d of %d bytes: %v", len(raw), a.size, err)
	}
	if resp.StatusCode == a.status && sha256.Sum256(raw) == a.sum {
		return whole, ""
	}
	var problem struct{ Error api.Problem }
	_ = json.Unmarshal(raw, &problem)
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && problem.Error.Code != "":
		return refused, problem.Error.Code
	case resp.StatusCode == a.status:
		return differs, fmt.Sprintf("%d of %d bytes, JSON: %v: …%q", len(raw), a.size, json.Valid(raw), tail(raw, 80))
	}
	return strange, fmt.Sprintf("%s %.300s", resp.Status, raw)
}

// slowly rests before its first reads, so that the sender has to wait.
type slowly struct {
	io.Reader
	rests int
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.rests > 0 {
		s.rests--
		time.Sleep(20 * time.Millisecond)
	}
	return s.Reader.Read(p)
}

// ask is a request with a known answer.
type ask struct {
	method, path string
	body         []byte
	status, size int
	sum          [sha256.Size]byte
}

func (a ask) send(ctx context.Context, h *http.Client, base string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, a.method, base+a.path, bytes.NewReader(a.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return h.Do(req)
}

const (
	passages = "/v1/collections/passages" // many documents to be searched
	books    = "/v1/collections/books"    // few large ones to be read
)

// prepare loads documents into the apiserver at base, and asks it itself for what
// will be asked for through webmemory; what is asked for several times as often
// stands in asks so many times.
func (p *passing) prepare(ctx context.Context, base string) (err error) {
	rng := p.random(1 << 33)
	direct := func(a ask) ask { // asks the apiserver; after an error it asks no more
		if err != nil {
			return a
		}
		var resp *http.Response
		if resp, err = a.send(ctx, http.DefaultClient, base); err != nil {
			return a
		}
		defer resp.Body.Close()
		var raw []byte
		if raw, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode >= 500 {
			err = fmt.Errorf("%s %s: %s %.300s", a.method, a.path, resp.Status, raw)
		}
		a.status, a.size, a.sum = resp.StatusCode, len(raw), sha256.Sum256(raw)
		return a
	}
	add := func(times int, method, path string, body []byte) {
		a := direct(ask{method: method, path: path, body: body})
		if again := direct(a); err == nil && (again.status != a.status || again.sum != a.sum) {
			err = fmt.Errorf("%s %s is answered in two ways: %d, %d bytes; %d, %d bytes", method, path, a.status, a.size,
				again.status, again.size)
		}
		p.asks = append(p.asks, slices.Repeat([]ask{a}, times)...)
	}
	load := func(path string, size int) (body []byte) {
		body, _ = json.Marshal(map[string]string{"title": path[strings.LastIndex(path, "/")+1:], "text": prose(rng, size)})
		direct(ask{method: http.MethodPut, path: path, body: body})
		return body
	}
	direct(ask{method: http.MethodPut, path: passages})
	direct(ask{method: http.MethodPut, path: books})
	for i := range p.library {
		path := fmt.Sprintf("%s/documents/d%03d.txt", passages, i)
		body := load(path, 500+rng.IntN(12_000))
		if i%10 == 0 {
			add(4, http.MethodGet, path, nil)
		}
		if i%20 == 0 {
			add(2, http.MethodPut, path, body) // once more is no change
		}
	}
	for i, size := range []int{100 << 10, 1 << 20, 8 << 20} {
		path := fmt.Sprintf("%s/documents/b%d.txt", books, i)
		body := load(path, size)
		add([]int{20, 6, 2}[i], http.MethodGet, path, nil)
		if i < 2 {
			add(2, http.MethodPut, path, body)
		}
	}
	// The apiserver answers with the collections' state as it is by now.
	for i := range 120 {
		search := map[string]any{"query": prose(rng, 20+rng.IntN(60)), "k": []int{1, 10, 100}[i%3]}
		if i%4 == 0 { // more than one write of the client to the apiserver
			search["history"] = []map[string]string{{"role": "user", "content": prose(rng, rng.IntN(100<<10))}}
		}
		body, _ := json.Marshal(search)
		add(3, http.MethodPost, passages+"/search", body)
	}
	for _, path := range []string{passages, passages + "/documents?limit=1000", passages + "/documents/none.txt",
		"/v1/collections/none"} {
		add(10, http.MethodGet, path, nil)
	}
	return err
}

// prose is text of words that come back, so that searches find much.
func prose(rng *rand.Rand, size int) string {
	words := strings.Fields(`harbour lighthouse keeper winter storm rope anchor ledger copper engine valley river bridge
		market letter captain island orchard teacher station маяк гавань якорь письмо 灯台 港 straße façade "quoted" <tag> &
		back\slash`)
	var b strings.Builder
	for b.Len() < size {
		for range 8 + rng.IntN(12) {
			b.WriteString(words[rng.IntN(len(words))] + " ")
		}
		b.WriteString("end.\n\n"[:5+rng.IntN(2)])
	}
	return b.String()
}
