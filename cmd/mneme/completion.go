package main

import (
	"io"

	"github.com/spf13/cobra"
)

// bashCompletion calls mneme for the candidates, like the library's scripts for the other shells. The library's script
// for bash needs the package bash-completion and a newer bash than that of macOS.
const bashCompletion = `_mneme() {
    local IFS=$'\n'
    COMPREPLY=($(mneme __completeNoDesc "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | grep -v '^:'))
}
complete -o default -F _mneme mneme
`

func completionCommand(con *console) *cobra.Command {
	c := newCommand("completion <shell>", "Print a script that lets a shell complete commands.", `Examples:
  source <(mneme completion bash)          # in ~/.bashrc
  source <(mneme completion zsh)           # in ~/.zshrc, behind compinit
  mneme completion fish > ~/.config/fish/completions/mneme.fish`)
	c.ValidArgs = []string{"bash", "zsh", "fish"}
	c.RunE = func(c *cobra.Command, args []string) error {
		switch args[0] {
		case "bash":
			_, err := io.WriteString(con.stdout, bashCompletion)
			return err
		case "zsh":
			return c.Root().GenZshCompletion(con.stdout)
		case "fish":
			return c.Root().GenFishCompletion(con.stdout, true)
		}
		return badUsage(`<shell> must be one of "bash","zsh","fish" but got %q`, args[0])
	}
	return c
}
