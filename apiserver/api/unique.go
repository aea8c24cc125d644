package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// CheckUnique refuses valid JSON in which an object has a member twice, at any depth.
// The error is a *Problem.
func CheckUnique(raw []byte) error { return checkUnique(raw, math.MaxInt) }

// checkUnique refuses valid JSON in which an object has a member twice, down to a
// depth (0: the outermost object): one part of a program would use the first, another
// the second. The members of the outermost object are those of a struct, which takes
// them in upper and lower case.
func checkUnique(raw []byte, depth int) error {
	u := unique{rest: raw, depth: depth}
	return u.value("", 0)
}

// maxPath bounds what is kept of a path, in bytes: below a long name each member would copy it once more.
const maxPath = 200

// unique walks through valid JSON.
type unique struct {
	rest  []byte
	depth int
}

// next is the first byte of what comes, behind spaces, commas and colons.
func (u *unique) next() byte {
	u.rest = bytes.TrimLeft(u.rest, " \t\r\n,:")
	if len(u.rest) == 0 {
		return 0
	}
	return u.rest[0]
}

// value passes over one value; path is where it stands.
func (u *unique) value(path string, depth int) error {
	switch u.next() {
	case '{':
		return u.object(path, depth)
	case '[':
		u.rest = u.rest[1:]
		for u.next() != ']' {
			if err := u.value(path, depth+1); err != nil {
				return err
			}
		}
		u.rest = u.rest[1:]
	case '"':
		u.text()
	default:
		end := bytes.IndexAny(u.rest, " \t\r\n,:]}")
		if end < 0 {
			end = len(u.rest)
		}
		u.rest = u.rest[end:]
	}
	return nil
}

func (u *unique) object(path string, depth int) error {
	u.rest = u.rest[1:]
	seen := map[string]bool{}
	for u.next() != '}' {
		text, at := u.text(), path
		if depth <= u.depth {
			name := string(text[1 : len(text)-1])
			if strings.Contains(name, `\`) || !utf8.ValidString(name) { // it may be spelt in more than one way
				if err := json.Unmarshal(text, &name); err != nil {
					return explain(err)
				}
			}
			at += name
			if depth == 0 {
				name = strings.ToLower(strings.ToUpper(name)) // as encoding/json matches names
			}
			if seen[name] {
				return badRequest(fmt.Sprintf("The body has the member %.80q twice; send it once.", at))
			}
			seen[name] = true
			at = at[:min(len(at), maxPath)]
		}
		if err := u.value(at+".", depth+1); err != nil {
			return err
		}
	}
	u.rest = u.rest[1:]
	return nil
}

// text passes over a string and gives it with its quotes.
func (u *unique) text() []byte {
	end := 1
	for u.rest[end] != '"' {
		if u.rest[end] == '\\' {
			end++
		}
		end++
	}
	text := u.rest[:end+1]
	u.rest = u.rest[end+1:]
	return text
}
