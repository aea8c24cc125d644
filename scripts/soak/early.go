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

// earlyLimit is how long a message that is sent again may take, and what was begun may take to come to its end.
const earlyLimit = time.Minute

// killEarly kills a webmemory in the first milliseconds of what it is asked for: a message with a key, which is sent
// again to the other one, or in every fourth round the erasure of a chat with a document, which is not asked for again.
func killEarly(ctx context.Context, t *trial) (clean bool, err error) {
	rng := t.random(1)
	err = t.eachRound(ctx, func(round int, here, there *service) error {
		base, after := fmt.Sprint("/v1/chats/early-", round), time.Duration(rng.IntN(30_000))*time.Microsecond
		do := t.repost
		if round%4 == 3 {
			do = t.eraseChat
			if err := prepare(there, base); err != nil {
				return err
			}
		}
		if finding := do(here, there, base, after); finding != "" {
			t.find("round %d: killed after %v, %s", round, after, finding)
		}
		return t.startAll()
	})
	return err == nil && t.report("rounds", "messages answered when sent again", "ms that the longest took",
		"erasures finished by another process", "erasures that had not begun"), err
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

func (t *trial) repost(here, there *service, base string, after time.Duration) (finding string) {
	const body = `{"message":"the only question"}`
	go here.ask(http.MethodPost, base+"/messages", body)
	time.Sleep(after)
	here.Kill()
	began := time.Now()
	for status, said := 0, ""; status != http.StatusOK; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > earlyLimit {
			return fmt.Sprintf("the message was not answered in %v: %d %.200s", earlyLimit, status, said)
		}
		status, said = there.ask(http.MethodPost, base+"/messages", body)
	}
	t.count("messages answered when sent again", 1)
	took, longest := int(time.Since(began).Milliseconds()), "ms that the longest took"
	t.count(longest, max(0, took-t.counted(longest)))
	_, history := there.ask(http.MethodGet, base+"/history", "")
	if n := strings.Count(history, "the only question"); n != 1 {
		return fmt.Sprintf("the message is there %d times", n)
	}
	return ""
}

// prepare makes a chat with a message and a document.
func prepare(v *service, base string) error {
	if status, said := v.ask(http.MethodPost, base+"/messages", `{"message":"zqsecret"}`); status != http.StatusOK {
		return fmt.Errorf("%d %s", status, said)
	}
	if status, said := v.ask(http.MethodPut, base+"/documents/a.txt", "zqsecret"); status != http.StatusCreated {
		return fmt.Errorf("%d %s", status, said)
	}
	return nil
}

func (t *trial) eraseChat(here, there *service, base string, after time.Duration) (finding string) {
	go here.ask(http.MethodDelete, base, "")
	time.Sleep(after)
	here.Kill()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_, history := there.ask(http.MethodGet, base+"/history", "")
		status, documents := there.ask(http.MethodGet, base+"/documents", "")
		messages, document := strings.Contains(history, "zqsecret"), strings.Contains(documents, "a.txt")
		switch {
		case status == http.StatusOK && messages && document && time.Since(began) > 2*time.Second: // it had not begun
			t.count("erasures that had not begun", 1)
			return ""
		case status == http.StatusOK && !messages && !document:
			t.count("erasures finished by another process", 1)
			return ""
		case time.Since(began) > earlyLimit:
			return fmt.Sprintf("an erasure has left messages: %t, a document: %t", messages, document)
		}
	}
}
