//go:build !race

package proxy_test

// raced reports whether the race detector is on. It makes everything ten times slower.
const raced = false
