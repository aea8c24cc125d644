//go:build !linux

package bench

import "os/exec"

// askedWithParent is a wish that only Linux fulfils.
func askedWithParent(*exec.Cmd) {}
