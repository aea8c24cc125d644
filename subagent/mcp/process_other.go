//go:build !unix

package mcp

import "os/exec"

// Without process groups only the program itself is ended.
func prepare(*exec.Cmd) {}

func terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
