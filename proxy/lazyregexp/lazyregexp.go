// Package lazyregexp has regular expressions that are compiled when they are first used. Compiled ones take memory
// and the time of a program's start, and most of a program's are never used by one process. It owns each compiled
// expression, once, and never forgets one.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp returns a *regexp.Regexp, always the same. Its first use panics if the expression is wrong.
type Regexp func() *regexp.Regexp

// New is for an expression that is known.
func New(expression string) Regexp { return NewFunc(func() string { return expression }) }

// NewFunc is for an expression that is put together when it is first used.
func NewFunc(expression func() string) Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression()) })
}
