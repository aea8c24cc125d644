package main

import (
	"os"
	"os/exec"

	"github.com/spf13/cobra"
)

func retrieval() *cobra.Command {
	return &cobra.Command{
		Use: "retrieval", Short: "Indexing and searching made-up documents",
		Long: `The index measures itself: this runs its benchmarks, which make 11,000 and 95,000 passages up. How good ` +
			`the hits are is for go run ./scripts/eval retrieval.`,
		RunE: func(*cobra.Command, []string) error {
			cmd := exec.Command("go", "test", "-run", "^$", "-bench", ".", "./memory/textindex")
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			return cmd.Run()
		},
	}
}
