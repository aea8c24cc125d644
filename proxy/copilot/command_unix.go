//go:build unix

package copilot

import (
	"os/exec"
	"syscall"
)

// prepare puts the CLI into a process group of its own: it starts other programs,
// and is one itself when npm's wrapper is run.
func prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
}

// terminate asks the group to end. A group that is gone is fine.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// kill ends the group.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
