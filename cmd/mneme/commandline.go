package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/doc/comment"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mneme/apiserver/api"
)

// No template of cobra's may be set (SetUsageTemplate, SetHelpTemplate,
// SetVersionTemplate): text/template calls methods by names that are known at run time
// only, so the linker would have to keep every exported method of every type, and
// the program would be a third larger. TestTheLinkerLeavesOutWhatNobodyCalls notices.

func init() { cobra.EnableCommandSorting = false } // help lists commands as they are declared

// usageError is an error of the command line. It sets the exit code 2.
type usageError struct{ error }

// badUsage returns a usageError.
func badUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// mapBadRequest turns a service's status 400 into a usageError.
func mapBadRequest(err error) error {
	if refused := new(api.Problem); errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
		return usageError{err}
	}
	return err
}

// errVersion ends a command line that asks for the version, whatever else it holds.
var errVersion = errors.New("the version is asked for")

// newCommand returns a command with its usage line, its summary and its description.
func newCommand(use, short, long string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long}
}

// group returns a command that only holds others.
func group(name, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name + " <command>", Short: short}
	c.AddCommand(children...)
	return c
}

// removedCommands maps commands and flags of earlier versions to their replacements.
var (
	removedCommands = map[string]string{
		"memory set-aside": "mneme memory rewind with --list or --restore",
		"memory tail":      "mneme memory get with --last",
		"memory user":      "mneme memory note and mneme memory rm with --user",
		"proxy certify":    "mneme config check with --call",
		"proxy serve":      "mneme proxy",
		"proxy usage":      "mneme usage",
	}
	removedFlags = map[string]string{
		"config show --profiles": "mneme proxy use",
		"proxy use --proxy":      "--url",
		"up --open":              "the address that mneme up prints",
		"--webmemory":            "--url", // of many commands
	}
)

// replacementOf returns the replacement of a command's removed flag, or "".
func replacementOf(c *cobra.Command, flag string) string {
	line := strings.TrimPrefix(c.CommandPath(), "mneme ") + " --" + flag
	return cmp.Or(removedFlags[line], removedFlags["--"+flag])
}

// refuseRemoved adds hidden commands that fail and name the replacement of a removed command.
func refuseRemoved(root *cobra.Command) {
	for line, replacement := range removedCommands {
		parent, name, _ := strings.Cut(line, " ")
		cmd, _, _ := root.Find([]string{parent})
		c := &cobra.Command{Use: name + " ...", Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return badUsage("mneme %s was removed: use %s", line, replacement)
			}}
		c.SetHelpFunc(func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "mneme %s was removed: use %s\n", line, replacement)
		})
		cmd.AddCommand(c)
	}
}

// execute runs the command that args name. Errors of the command line are usageErrors.
func execute(ctx context.Context, root *cobra.Command, args []string, con *console) error {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetIn(con.stdin)
	root.SetOut(con.stdout)
	root.SetErr(con.stderr)
	root.SetHelpFunc(help)
	root.SetFlagErrorFunc(describeFlagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolP("help", "h", false, "Show this help")
	root.PersistentFlags().BoolFunc("version", "Print the version", func(string) error { return errVersion })
	refuseRemoved(root)
	prepare(root)
	return root.ExecuteContext(ctx)
}

// prepare sets the common fields of a command and its children.
func prepare(c *cobra.Command) {
	c.Args = checkArguments
	c.Flags().SortFlags = false
	if !c.Runnable() { // cobra checks the arguments of runnable commands only
		c.RunE = func(*cobra.Command, []string) error { return nil }
	}
	for _, child := range c.Commands() {
		prepare(child)
	}
}

// checkArguments compares the arguments with those of the command's Use: <needed>,
// [<optional>], and ... for any number.
func checkArguments(c *cobra.Command, args []string) error {
	if missing := missingFlags(c); len(missing) > 0 {
		return badUsage("missing flags: %s", strings.Join(missing, ", "))
	}
	_, rest, _ := strings.Cut(c.Use, " ")
	params := strings.Fields(strings.TrimSuffix(rest, " ..."))
	if rest == "<command>" {
		if len(args) == 0 {
			return badUsage(`expected one of "%s"`, strings.Join(names(c), `", "`))
		}
		params = nil // cobra found no command of this name
	}
	if len(args) < len(params) && strings.HasPrefix(params[len(args)], "<") {
		return badUsage("expected %q", params[len(args)])
	}
	if len(args) > len(params) && !strings.HasSuffix(rest, "...") {
		return badUsage("unexpected argument %s%s", args[len(params)], suggest(args[len(params)], "", names(c)))
	}
	return nil
}

// missingFlags returns the required flags that are not set.
func missingFlags(c *cobra.Command) (missing []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && !f.Changed {
			placeholder, _ := pflag.UnquoteUsage(f)
			missing = append(missing, "--"+f.Name+"="+placeholder)
		}
	})
	return missing
}

// names returns the names of the children of a command.
func names(c *cobra.Command) (names []string) {
	for _, child := range c.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return names
}

// suggest returns a hint with the name that typed resembles or begins.
func suggest(typed, dashes string, names []string) string {
	near := api.Nearest(typed, names)
	if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, typed) }); i >= 0 {
		near = names[i]
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", dashes+near)
}

// flagKinds describes the value of a flag by its type.
var flagKinds = map[string]string{"bool": "true or false", "boolfunc": "true or false", "int": "a whole number",
	"duration": "a duration such as 90s", "float64Slice": "numbers with commas between them"}

// describeFlagError returns pflag's error as a sentence.
func describeFlagError(c *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		value   *pflag.InvalidValueError
		lacks   *pflag.ValueRequiredError
	)
	switch {
	case errors.Is(err, errVersion):
		return err
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return badUsage("unknown flag -%s", unknown.GetSpecifiedName())
	case errors.As(err, &unknown) && replacementOf(c, unknown.GetSpecifiedName()) != "":
		return badUsage("--%s was removed: use %s", unknown.GetSpecifiedName(), replacementOf(c, unknown.GetSpecifiedName()))
	case errors.As(err, &unknown):
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return badUsage("unknown flag --%s%s", unknown.GetSpecifiedName(), suggest(unknown.GetSpecifiedName(), "--", names))
	case errors.As(err, &lacks):
		return badUsage("--%s needs a value", lacks.GetFlag().Name)
	case errors.As(err, &value) && flagKinds[value.GetFlag().Value.Type()] != "":
		return badUsage("--%s: expected %s but got %q", value.GetFlag().Name, flagKinds[value.GetFlag().Value.Type()],
			value.GetValue())
	case errors.As(err, &value):
		return badUsage("--%s: %w", value.GetFlag().Name, errors.Unwrap(value))
	}
	return usageError{err}
}

// variableFlag adds a flag. Without the flag, its value is that of an environment variable or else the default.
func variableFlag(con *console, c *cobra.Command, name, variable, standard, usage string) *string {
	value := c.Flags().String(name, standard, usage+" ($"+variable+")")
	*value = cmp.Or(con.getenv(variable), *value) // help still shows the default
	return value
}

const helpWidth = 80

// help prints what a command does, the commands below it and its flags.
func help(c *cobra.Command, _ []string) {
	out := c.OutOrStdout()
	_, arguments, _ := strings.Cut(c.UseLine(), c.CommandPath())
	usage := append([]string{c.CommandPath()}, missingFlags(c)...)
	fmt.Fprintf(out, "Usage: %s%s\n\n", strings.Join(usage, " "), arguments)
	var parser comment.Parser
	printer := comment.Printer{TextWidth: helpWidth, TextCodePrefix: "    "}
	_, _ = out.Write(printer.Text(parser.Parse(c.Short + "\n\n" + c.Long)))
	if c.HasAvailableSubCommands() {
		fmt.Fprint(out, "\nCommands:\n")
		width := 0
		listCommands(c, c.CommandPath()+" ", func(name, _ string) { width = max(width, len(name)) })
		listCommands(c, c.CommandPath()+" ", func(name, short string) {
			fmt.Fprintf(out, "  %-*s  %s\n", width, name, short)
		})
	}
	fmt.Fprintf(out, "\nFlags:\n%s", c.Flags().FlagUsagesWrapped(helpWidth))
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\nRun \"%s <command> --help\" for more information on a command.\n", c.CommandPath())
	}
}

// listCommands lists the commands below one that do something, by their names behind a prefix.
func listCommands(c *cobra.Command, prefix string, list func(name, short string)) {
	for _, child := range c.Commands() {
		switch {
		case child.HasAvailableSubCommands():
			listCommands(child, prefix, list)
		case child.IsAvailableCommand():
			list(strings.TrimPrefix(child.CommandPath(), prefix), child.Short)
		}
	}
}
