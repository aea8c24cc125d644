package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mneme/internal/upstreamtest"
)

// scriptMark stands before a script in a user's words.
const scriptMark = "SCRIPT "

// part is a block of a scripted answer, or where the answer ends early; exactly one
// member but input is set.
type part struct {
	Say      string         `json:"say"`
	Think    string         `json:"think"`
	Omitted  bool           `json:"omitted"`
	Redacted bool           `json:"redacted"`
	Compact  string         `json:"compact"`
	Use      string         `json:"use"`
	Input    jsontext.Value `json:"input"`
	Cut      *cut           `json:"cut"`
}

// cut is where an answer ends early; see upstreamtest.Cut.
type cut struct {
	Events int  `json:"after"`
	Inside bool `json:"inside"`
	Clean  bool `json:"clean"`
	Error  int  `json:"error"`
	Times  int  `json:"times"` // only the first so many times that the user says this; 0 is always
}

// scripts answer what users' words say.
type scripts struct {
	mu  sync.Mutex
	cut map[string]int // answers that were cut, by the user's words
}

// answer answers with what the user's last words say, as often as they have an
// answer for the results that are there. Nil leaves it to the default answer:
// also when the script calls a tool that this request does not offer, as one does
// that only quotes the user.
func (s *scripts) answer(r *upstreamtest.Request) *upstreamtest.Answer {
	_, text, ok := strings.Cut(r.User, scriptMark)
	if !ok {
		return nil
	}
	// Whatever follows the script is the client's.
	script, err := jsontext.NewDecoder(bytes.NewBufferString(text)).ReadValue()
	var answers [][]part
	if err == nil {
		err = json.Unmarshal(script, &answers, json.RejectUnknownMembers(true))
	}
	if err != nil {
		a := upstreamtest.Reply(upstreamtest.Say(fmt.Sprintf("The script cannot be read: %s.", err)))
		return &a
	}
	answered := 0 // calls of the answers before
	for _, parts := range answers {
		if answered < len(r.Results) {
			answered += calls(parts)
			continue
		}
		for _, p := range parts {
			if p.Use != "" && !slices.ContainsFunc(r.Tools, func(t upstreamtest.Tool) bool { return t.Name == p.Use }) {
				return nil
			}
		}
		a := upstreamtest.Reply(blocks(parts)...)
		a.Cut = s.cutOf(parts, r.User)
		return &a
	}
	return nil
}

// cutOf is where an answer of these parts to these words ends early; nil for nowhere.
func (s *scripts) cutOf(parts []part, words string) *upstreamtest.Cut {
	i := slices.IndexFunc(parts, func(p part) bool { return p.Cut != nil })
	if i < 0 {
		return nil
	}
	c := parts[i].Cut
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut[words]++; c.Times > 0 && s.cut[words] > c.Times {
		return nil
	}
	return &upstreamtest.Cut{Events: c.Events, Inside: c.Inside, Clean: c.Clean, Error: c.Error}
}

func calls(parts []part) (n int) {
	for _, p := range parts {
		if p.Use != "" {
			n++
		}
	}
	return n
}

func blocks(parts []part) (out []upstreamtest.Block) {
	for _, p := range parts {
		switch {
		case p.Cut != nil:
		case p.Use != "":
			out = append(out, upstreamtest.Use(p.Use, string(p.Input)))
		case p.Redacted:
			out = append(out, upstreamtest.Redacted())
		case p.Compact != "":
			out = append(out, upstreamtest.Compact(p.Compact))
		case p.Omitted:
			out = append(out, upstreamtest.Omitted())
		case p.Think != "":
			out = append(out, upstreamtest.Think(p.Think))
		default:
			out = append(out, upstreamtest.Say(p.Say))
		}
	}
	return out
}
