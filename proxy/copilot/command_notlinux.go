//go:build unix && !linux

package copilot

import "syscall"

// dieWithParent: only Linux can do that. A CLI outlives a process that is killed.
func dieWithParent(*syscall.SysProcAttr) {}
