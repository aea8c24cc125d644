package bench

import (
	"os/exec"
	"syscall"
)

// askedWithParent lets the kernel ask the process to end when this one is killed
// before it could: what has children of its own must see to them. An interrupt
// from the terminal is this process's alone, which then ends the others.
func askedWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
