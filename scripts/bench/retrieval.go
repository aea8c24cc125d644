package main

import (
	"os"
	"os/exec"
)

type retrievalCmd struct{}

func (retrievalCmd) Help() string {
	return `The index measures itself: this runs its benchmarks, which make 11,000 and 95,000 passages up. How good ` +
		`the hits are is for mneme eval retrieval.`
}

func (retrievalCmd) Run() error {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", ".", "./memory/textindex")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
