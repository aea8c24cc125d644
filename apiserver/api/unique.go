package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// CheckMembers refuses valid JSON for what v points to in which an object has a member twice, or, where a struct takes
// it, in another spelling of upper and lower case, at any depth; and what is no UTF-8. The error is a *Problem.
func CheckMembers(raw []byte, v any) error { return checkMembers(raw, math.MaxInt, v) }

// checkMembers is CheckMembers down to a depth (0: the outermost object): one part of a program would use the first of
// two members, another the second; and encoding/json takes every spelling of a name.
func checkMembers(raw []byte, depth int, v any) error {
	if !utf8.Valid(raw) {
		return badRequest("The body is not valid UTF-8.")
	}
	u := unique{rest: raw, depth: depth}
	return u.value("", 0, reflect.TypeOf(v))
}

// unmarshaler is what reads JSON by itself.
var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// inside is what encoding/json finds behind the pointers of a type; nil for what reads itself.
func inside(t reflect.Type) reflect.Type {
	for t != nil && !t.Implements(unmarshaler) && !reflect.PointerTo(t).Implements(unmarshaler) {
		if t.Kind() != reflect.Pointer {
			return t
		}
		t = t.Elem()
	}
	return nil
}

// structs are the results of membersOf.
var structs sync.Map

// membersOf are the members that encoding/json takes for a type, by name; nil for one that is no struct.
func membersOf(t reflect.Type) map[string]reflect.Type {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := structs.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	members := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "-" && !(f.Anonymous && name == "") {
			members[cmp.Or(name, f.Name)] = f.Type
		}
	}
	structs.Store(t, members)
	return members
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

// value passes over one value for a type; path is where it stands.
func (u *unique) value(path string, depth int, t reflect.Type) error {
	t = inside(t)
	switch u.next() {
	case '{':
		return u.object(path, depth, t)
	case '[':
		if u.rest = u.rest[1:]; t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			t = t.Elem()
		} else {
			t = nil
		}
		for u.next() != ']' {
			if err := u.value(path, depth+1, t); err != nil {
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

func (u *unique) object(path string, depth int, t reflect.Type) error {
	u.rest = u.rest[1:]
	seen, members := map[string]bool{}, membersOf(t)
	for u.next() != '}' {
		text, at, inner := u.text(), path, reflect.Type(nil)
		if depth <= u.depth {
			name := string(text[1 : len(text)-1])
			if strings.Contains(name, `\`) { // it may be spelt in more than one way
				if err := json.Unmarshal(text, &name); err != nil {
					return explain(err)
				}
			}
			at += name
			if seen[name] {
				return badRequest(fmt.Sprintf("The body has the member %.80q twice; send it once.", at))
			}
			seen[name] = true
			if inner = members[name]; inner == nil {
				for known := range members {
					if strings.EqualFold(known, name) {
						return badRequest(fmt.Sprintf("The body has no member %.80q; the nearest one is %s.", at, known))
					}
				}
			}
			if t != nil && t.Kind() == reflect.Map {
				inner = t.Elem()
			}
			at = at[:min(len(at), maxPath)]
		}
		if err := u.value(at+".", depth+1, inner); err != nil {
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
