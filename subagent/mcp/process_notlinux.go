//go:build unix && !linux

package mcp

import "syscall"

// dieWithParent: only Linux can do that. A program outlives a process that is killed, unless it
// ends with its input.
func dieWithParent(*syscall.SysProcAttr) {}
