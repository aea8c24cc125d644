package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// early kills a webmemory in the first milliseconds of what it is asked for: a message with a key, which is sent again to
// the other one, or in every fourth round the erasure of a chat with a document, which is not asked for again.
type early struct {
	options
	stack *stack
	out   io.Writer

	answered, whole, gone int
	longest               time.Duration // until a message that was sent again was answered
	wrong                 []string      // findings
}

// earlyLimit is how long a message that is sent again may take, and what was begun may take to come to its end.
const earlyLimit = time.Minute

func (e *early) run(ctx context.Context) (clean bool, err error) {
	began, rng := time.Now(), e.random(1)
	webs := e.stack.webs()
	for round := 0; round < e.rounds && ctx.Err() == nil; round++ {
		here, there := webs[round%2], webs[(round+1)%2]
		base, do := fmt.Sprint("/v1/chats/early-", round), e.post
		if round%4 == 3 {
			do = e.erase
			if err := e.prepare(there, base); err != nil {
				return false, fmt.Errorf("round %d: %w", round, err)
			}
		}
		finding := do(here, there, base, time.Duration(rng.IntN(30_000))*time.Microsecond)
		if finding != "" {
			e.wrong = append(e.wrong, fmt.Sprintf("round %d: %s", round, finding))
		}
		if err := e.stack.startAll(); err != nil {
			return false, err
		}
	}
	return e.report(time.Since(began)), nil
}

// ask is one request; status is 0 for one that was cut short.
func (v *service) ask(method, path, body string) (status int, said string) {
	req, err := http.NewRequest(method, "http://"+v.addr+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPut {
		req.Header.Set("Content-Type", "text/plain")
	}
	req.Header.Set("Idempotency-Key", path)
	resp, err := (&http.Client{Timeout: earlyLimit}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

func (e *early) post(here, there *service, base string, after time.Duration) (finding string) {
	const body = `{"message":"the only question"}`
	go here.ask(http.MethodPost, base+"/messages", body)
	time.Sleep(after)
	here.Kill()
	began := time.Now()
	for status, said := 0, ""; status != http.StatusOK; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > earlyLimit {
			return fmt.Sprintf("killed after %v, the message was not answered in %v: %d %.200s", after, earlyLimit, status, said)
		}
		status, said = there.ask(http.MethodPost, base+"/messages", body)
	}
	e.answered, e.longest = e.answered+1, max(e.longest, time.Since(began))
	_, history := there.ask(http.MethodGet, base+"/history", "")
	if n := strings.Count(history, "the only question"); n != 1 {
		return fmt.Sprintf("killed after %v, the message is there %d times", after, n)
	}
	return ""
}

// prepare makes a chat with a message and a document.
func (e *early) prepare(v *service, base string) error {
	if status, said := v.ask(http.MethodPost, base+"/messages", `{"message":"zqsecret"}`); status != http.StatusOK {
		return fmt.Errorf("%d %s", status, said)
	}
	if status, said := v.ask(http.MethodPut, base+"/documents/a.txt", "zqsecret"); status != http.StatusCreated {
		return fmt.Errorf("%d %s", status, said)
	}
	return nil
}

func (e *early) erase(here, there *service, base string, after time.Duration) (finding string) {
	go here.ask(http.MethodDelete, base, "")
	time.Sleep(after)
	here.Kill()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_, history := there.ask(http.MethodGet, base+"/history", "")
		status, documents := there.ask(http.MethodGet, base+"/documents", "")
		messages, document := strings.Contains(history, "zqsecret"), strings.Contains(documents, "a.txt")
		switch {
		case status == http.StatusOK && messages && document && time.Since(began) > 2*time.Second: // it had not begun
			e.whole++
			return ""
		case status == http.StatusOK && !messages && !document:
			e.gone++
			return ""
		case time.Since(began) > earlyLimit:
			return fmt.Sprintf("killed after %v, an erasure has left messages: %t, a document: %t", after, messages, document)
		}
	}
}

// report prints the totals and the findings.
func (e *early) report(took time.Duration) (clean bool) {
	fmt.Fprintf(e.out, "\nsoak of early kills of %v, seed %d\n", took.Round(time.Second), e.seed)
	for _, v := range e.stack.services {
		e.wrong = append(e.wrong, v.crashes...)
	}
	printRows(e.out, []row{{"rounds, and kill -9", e.rounds}, {"messages answered when sent again", e.answered},
		{"ms that the longest took", int(e.longest.Milliseconds())}, {"erasures finished by another process", e.gone},
		{"erasures that had not begun", e.whole}, {"findings", len(e.wrong)}})
	for _, w := range e.wrong[:min(len(e.wrong), 20)] {
		fmt.Fprintln(e.out, w)
	}
	return len(e.wrong) == 0
}
