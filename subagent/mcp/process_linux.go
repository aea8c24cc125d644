package mcp

import "syscall"

// dieWithParent has the kernel kill the child when the thread that started it ends, which it
// does when this process is killed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
