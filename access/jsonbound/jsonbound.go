// Package jsonbound refuses JSON that costs far more to decode than to send: nested without end, or made of millions
// of members. Decoders make a value of each member, and some look at a nested part once for every level above it. All
// services ask it before they decode a body of a client. It owns nothing and never decodes or changes a body.
package jsonbound

import (
	"bytes"
	"fmt"
	"net/http"
)

// Bounds of bodies. Members are members of objects and elements of arrays, at any depth.
const (
	Depth   = 256     // of arrays and objects in each other
	Members = 100_000 // of a request to webmemory, or one document
	// Transcript is for requests that have a whole conversation: 10 MB of a coding agent have less than 200,000 members.
	Transcript = 500_000
	// Run is for a run between the services, which may have all its events before it waited.
	Run = 5_000_000
)

// Refusal is why something is not decoded.
type Refusal struct {
	Status int    // of HTTP
	Code   string // of the problem
	Reason string // the end of a sentence about the JSON
}

func (r *Refusal) Error() string { return "the JSON " + r.Reason }

// Check refuses JSON of more than so many levels or members; the error is a *Refusal. It does not allocate. What is no
// JSON may pass: a decoder stops where it ends to be some, and up to there it was counted.
func Check(text []byte, depth, members int) error {
	switch deep, many := Count(text, depth, members); {
	case deep > depth:
		return &Refusal{http.StatusBadRequest, "bad_request", fmt.Sprintf("is nested more than %d deep", depth)}
	case many > members:
		return &Refusal{http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("has more than %d members and elements: send less at once", members)}
	}
	return nil
}

// Count is how deep JSON is nested and how many members it has, about: an object or array counts as one more. It stops
// where one of them is above its bound.
func Count(text []byte, depth, members int) (deep, many int) {
	level := 0
	for i := 0; i < len(text) && deep <= depth && many <= members; i++ {
		switch text[i] {
		case '"':
			i = endOfString(text, i)
		case '{', '[':
			level++
			many++
			deep = max(deep, level)
		case '}', ']':
			level--
		case ',':
			many++
		}
	}
	return deep, many
}

// endOfString is where the string that begins at a quote ends: at its other quote, or behind the text.
func endOfString(text []byte, pos int) int {
	for {
		n := bytes.IndexByte(text[pos+1:], '"')
		if n < 0 {
			return len(text)
		}
		escapes := 0
		for escapes < n && text[pos+n-escapes] == '\\' {
			escapes++
		}
		if pos += n + 1; escapes%2 == 0 {
			return pos
		}
	}
}
