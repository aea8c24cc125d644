//go:build unix

// Package processgroup runs a program in a process group of its own, so that what it has started ends with it. It
// owns nothing beyond the exec.Cmd that it is given, and never restarts a program.
package processgroup

import (
	"os/exec"
	"syscall"
)

// Prepare is called before the program is started. On Linux the program is killed when the thread
// that starts it ends, which it does at the latest with this process; elsewhere it outlives a
// process that is killed.
func Prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// Terminate asks the group to end. A group that is gone is fine.
func Terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// Kill ends the group.
func Kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
