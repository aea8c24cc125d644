package bench

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel end the process when this one is killed before
// it could.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
