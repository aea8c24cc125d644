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

var verdicts = []verdict{whole, left, broken, unheard, refused, differs, endless, strange}

// allowed says whether it may be, under a fault.
func (v verdict) allowed(fault string) bool {
	switch v {
	case whole, left:
		return true
	case broken, unheard, refused:
		return fault == faultKill
	}
	return false
}

// taken is one answer.
type taken struct {
	ask     string
	verdict verdict
	what    string
	bytes   int64
}

// taker is a client that reads answers through webmemory.
type taker struct {
	base string
	rng  *rand.Rand
	slow bool
	http *http.Client
}

func newTaker(base string, rng *rand.Rand, slow bool) *taker {
	t := &http.Transport{MaxIdleConnsPerHost: 1}
	if slow {
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(64 << 10)
			}
			return conn, err
		}
	}
	return &taker{base: base, rng: rng, slow: slow, http: &http.Client{Transport: t}}
}

// take asks for one of the answers and reads it.
func (t *taker) take(ctx context.Context, asks []ask) taken {
	a := asks[t.rng.IntN(len(asks))]
	got := taken{ask: a.String()}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	resp, err := a.send(ctx, t.http, t.base)
	if err != nil {
		if got.verdict, got.what = unheard, err.Error(); ctx.Err() != nil {
			got.verdict = endless
		}
		return got
	}
	defer resp.Body.Close()
	if t.rng.IntN(50) == 0 {
		_, _ = io.CopyN(io.Discard, resp.Body, int64(t.rng.IntN(a.size)))
		got.verdict = left
		return got
	}
	body := io.Reader(resp.Body)
	if t.slow && t.rng.IntN(4) == 0 {
		body = &slowly{Reader: body, rests: 50}
	}
	var raw bytes.Buffer
	_, err = raw.ReadFrom(body)
	same := sha256.Sum256(raw.Bytes()) == a.sum
	switch {
	case ctx.Err() != nil:
		got.verdict, got.what = endless, fmt.Sprintf("%d of %d bytes", raw.Len(), a.size)
	case err != nil:
		got.verdict, got.what = broken, fmt.Sprintf("%d of %d bytes: %v", raw.Len(), a.size, err)
	case resp.StatusCode == a.status && same:
		got.verdict, got.bytes = whole, int64(raw.Len())
	case resp.StatusCode == http.StatusServiceUnavailable && problem(raw.Bytes()) != "":
		got.verdict, got.what = refused, problem(raw.Bytes())
	case resp.StatusCode == a.status:
		got.verdict, got.what = differs, fmt.Sprintf("%d of %d bytes, JSON: %v: …%q", raw.Len(), a.size,
			json.Valid(raw.Bytes()), tail(raw.Bytes(), 80))
	default:
		got.verdict, got.what = strange, fmt.Sprintf("%s %.300s", resp.Status, raw.Bytes())
	}
	return got
}

func problem(raw []byte) string {
	var p struct{ Error api.Problem }
	_ = json.Unmarshal(raw, &p)
	return p.Error.Code
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
