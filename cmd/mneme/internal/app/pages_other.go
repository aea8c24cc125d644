//go:build !linux

package app

func dropStart() {}
