package copilot

import "syscall"

// dieWithParent has the kernel kill the child when the thread that started it
// ends, which it does when this process is killed. A CLI would live on otherwise.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
