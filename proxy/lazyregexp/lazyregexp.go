// Package lazyregexp has regular expressions that are compiled when they are first used. Compiled ones take memory
// and the time of a program's start, and most of a program's are never used by one process. It owns each compiled
// expression, once, and never forgets one.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a *regexp.Regexp. Its first use panics if the expression is wrong.
type Regexp struct{ compiled func() *regexp.Regexp }

// New is for an expression that is known.
func New(expression string) *Regexp { return Made(func() string { return expression }) }

// Made is for an expression that is put together when it is first used.
func Made(expression func() string) *Regexp {
	return &Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression()) })}
}

// MatchString is that of *regexp.Regexp.
func (r *Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

// FindStringIndex is that of *regexp.Regexp.
func (r *Regexp) FindStringIndex(s string) []int { return r.compiled().FindStringIndex(s) }

// FindStringSubmatch is that of *regexp.Regexp.
func (r *Regexp) FindStringSubmatch(s string) []string { return r.compiled().FindStringSubmatch(s) }

// FindAllString is that of *regexp.Regexp.
func (r *Regexp) FindAllString(s string, n int) []string { return r.compiled().FindAllString(s, n) }

// FindAllStringSubmatch is that of *regexp.Regexp.
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.compiled().FindAllStringSubmatch(s, n)
}

// ReplaceAllString is that of *regexp.Regexp.
func (r *Regexp) ReplaceAllString(s, by string) string { return r.compiled().ReplaceAllString(s, by) }

// ReplaceAllStringFunc is that of *regexp.Regexp.
func (r *Regexp) ReplaceAllStringFunc(s string, by func(string) string) string {
	return r.compiled().ReplaceAllStringFunc(s, by)
}
