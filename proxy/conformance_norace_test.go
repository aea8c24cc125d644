//go:build !race

package proxy_test

// raced: the race detector makes everything ten times slower.
const raced = false
