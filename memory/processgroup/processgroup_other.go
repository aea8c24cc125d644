//go:build !unix

// Package processgroup runs a program. Without process groups only the program itself is ended.
package processgroup

import "os/exec"

// Prepare is called before the program is started.
func Prepare(*exec.Cmd) {}

// Terminate ends the program.
func Terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// Kill ends the program.
func Kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
