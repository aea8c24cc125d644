//go:build unix && !linux

package processgroup

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
