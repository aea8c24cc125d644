package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
)

// ask is a request whose answer is known.
type ask struct {
	method, path string
	body         []byte
	status       int
	size         int
	sum          [sha256.Size]byte
}

func (a ask) String() string {
	return fmt.Sprintf("%s %s, %d bytes of body", a.method, a.path, len(a.body))
}

func (a ask) send(ctx context.Context, h *http.Client, base string) (*http.Response, error) {
	var body io.Reader
	if a.body != nil {
		body = bytes.NewReader(a.body)
	}
	req, err := http.NewRequestWithContext(ctx, a.method, base+a.path, body)
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

// prose is text of words that come back, so that searches find much.
func prose(rng *rand.Rand, size int) string {
	words :=
		strings.Fields(`harbour lighthouse keeper winter storm rope anchor ledger copper engine valley river bridge market
		letter captain island orchard teacher station маяк гавань якорь письмо 灯台 港 straße façade "quoted" <tag> & back\slash`)
	var b strings.Builder
	for b.Len() < size {
		for range 8 + rng.IntN(12) {
			b.WriteString(words[rng.IntN(len(words))] + " ")
		}
		b.WriteString("end.\n\n"[:5+rng.IntN(2)])
	}
	return b.String()
}

// prepare loads documents into the apiserver at base, and asks it itself for what
// will be asked for through webmemory. A request that is there several times is
// asked for more often.
func prepare(ctx context.Context, base string, seed uint64, documents int) ([]ask, error) {
	rng := rand.New(rand.NewPCG(seed, 1<<33))
	load := func(path string, size int) (ask, error) {
		raw, err := json.Marshal(map[string]string{"title": path[strings.LastIndex(path, "/")+1:], "text": prose(rng, size)})
		a := ask{method: http.MethodPut, path: path, body: raw}
		if err == nil {
			_, _, err = a.direct(ctx, base)
		}
		return a, err
	}
	var asks []ask
	add := func(times int, a ask) error {
		a, err := a.known(ctx, base)
		for range times {
			asks = append(asks, a)
		}
		return err
	}
	for _, c := range []string{passages, books} {
		if _, _, err := (ask{method: http.MethodPut, path: c}).direct(ctx, base); err != nil {
			return nil, err
		}
	}
	for i := range documents {
		path := fmt.Sprintf("%s/documents/d%03d.txt", passages, i)
		put, err := load(path, 500+rng.IntN(12_000))
		if err == nil && i%10 == 0 {
			err = add(4, ask{method: http.MethodGet, path: path})
		}
		if err == nil && i%20 == 0 {
			err = add(2, put) // once more is no change
		}
		if err != nil {
			return nil, err
		}
	}
	for i, size := range []int{100 << 10, 1 << 20, 8 << 20} {
		path := fmt.Sprintf("%s/documents/b%d.txt", books, i)
		put, err := load(path, size)
		if err == nil {
			err = add([]int{20, 6, 2}[i], ask{method: http.MethodGet, path: path})
		}
		if err == nil && i < 2 {
			err = add(2, put)
		}
		if err != nil {
			return nil, err
		}
	}
	// The apiserver answers with the collections' state as it is by now.
	for i := range 120 {
		k := []int{1, 10, 100}[i%3]
		search := map[string]any{"query": prose(rng, 20+rng.IntN(60)), "k": k}
		if i%4 == 0 { // more than one write of the client to the apiserver
			search["history"] = []map[string]string{{"role": "user", "content": prose(rng, rng.IntN(100<<10))}}
		}
		raw, err := json.Marshal(search)
		if err == nil {
			err = add(3, ask{method: http.MethodPost, path: passages + "/search", body: raw})
		}
		if err != nil {
			return nil, err
		}
	}
	for _, path := range []string{passages, passages + "/documents?limit=1000", passages + "/documents/none.txt",
		"/v1/collections/none"} {
		if err := add(10, ask{method: http.MethodGet, path: path}); err != nil {
			return nil, err
		}
	}
	return asks, nil
}

// direct asks the apiserver itself.
func (a ask) direct(ctx context.Context, base string) (status int, raw []byte, err error) {
	resp, err := a.send(ctx, http.DefaultClient, base)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 500 {
		err = fmt.Errorf("%s: %s %.300s", a, resp.Status, raw)
	}
	return resp.StatusCode, raw, err
}

// known is the request with its answer, which has to be the same twice.
func (a ask) known(ctx context.Context, base string) (ask, error) {
	for i := range 2 {
		status, raw, err := a.direct(ctx, base)
		if err != nil {
			return a, err
		}
		sum := sha256.Sum256(raw)
		if i > 0 && (status != a.status || sum != a.sum) {
			return a, fmt.Errorf("%s is answered in two ways: %d, %d bytes; %d, %d bytes: %.300s", a, a.status, a.size, status,
				len(raw), raw)
		}
		a.status, a.sum, a.size = status, sum, len(raw)
	}
	return a, nil
}
