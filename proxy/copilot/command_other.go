//go:build !unix

package copilot

import "os/exec"

// Without process groups only the CLI itself is ended.
func prepare(*exec.Cmd) {}

func terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
