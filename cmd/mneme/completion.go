package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completions are scripts by shell. They ask mneme itself what fits, so that they
// stay right when commands change.
var completions = map[string]string{
	"bash": `_mneme() {
    local IFS=$'\n'
    COMPREPLY=($(mneme complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _mneme mneme
`,
	"zsh": `#compdef mneme
_mneme() {
    local -a fits
    fits=(${(f)"$(mneme complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#fits )); then compadd -a fits; else _files; fi
}
if [[ $funcstack[1] == _mneme ]]; then _mneme; else compdef _mneme mneme; fi
`,
	"fish": `function __mneme
    mneme complete -- (commandline -opc)[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null
end
complete -c mneme -n 'count (__mneme) >/dev/null' -f -a '(__mneme)'
`,
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCmd) Help() string {
	return `Examples:
  source <(mneme completion bash)          # in ~/.bashrc
  source <(mneme completion zsh)           # in ~/.zshrc, behind compinit
  mneme completion fish > ~/.config/fish/completions/mneme.fish`
}

func (c completionCmd) Run(con *console) error {
	_, err := fmt.Fprint(con.stdout, completions[c.Shell])
	return err
}

// completeCmd is what the scripts ask.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c completeCmd) Run(con *console, parser *kong.Kong) error { //nolint:unparam // as kong calls it
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, fit := range complete(parser.Model.Node, words) {
		fmt.Fprintln(con.stdout, fit)
	}
	return nil
}

// complete lists what may stand in the place of the last word: names of commands,
// flags, or the values that are allowed there.
func complete(node *kong.Node, words []string) (fits []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var value *kong.Value // what the last word is for, if it is for something
	given := 0            // positional arguments
	for _, word := range words[:len(words)-1] {
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
		flag := flagsOf(node)[word]
		switch {
		case value != nil:
			value = nil
		case flag != nil && !flag.IsBool():
			value = flag.Value
		case child >= 0:
			node = node.Children[child]
		case !strings.HasPrefix(word, "-"):
			given++
		}
	}
	switch {
	case value != nil:
	case strings.HasPrefix(last, "-"):
		fits = slices.Sorted(maps.Keys(flagsOf(node)))
	case given < len(node.Positional):
		value = node.Positional[given]
	case given == 0:
		for _, child := range node.Children {
			if !child.Hidden {
				fits = append(fits, child.Name)
			}
		}
	}
	if value != nil && value.Enum != "" {
		fits = value.EnumSlice()
	}
	return slices.DeleteFunc(fits, func(fit string) bool { return !strings.HasPrefix(fit, last) })
}

// flagsOf are the flags that may stand behind a command as they are typed, those of
// the command that it stands for included.
func flagsOf(node *kong.Node) map[string]*kong.Flag {
	groups := node.AllFlags(true)
	if node.DefaultCmd != nil {
		groups = append(groups, node.DefaultCmd.Flags)
	}
	flags := map[string]*kong.Flag{}
	for _, f := range slices.Concat(groups...) {
		flags["--"+f.Name] = f
	}
	return flags
}
