package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// leaves are the commands that do something, each as it is typed.
func leaves(c *cobra.Command, path []string) map[string]*cobra.Command {
	found := map[string]*cobra.Command{}
	for _, child := range c.Commands() {
		at := append(path[:len(path):len(path)], child.Name())
		for line, leaf := range leaves(child, at) {
			found[line] = leaf
		}
		if child.RunE != nil {
			found[strings.Join(at, " ")] = child
		}
	}
	return found
}

// typed is a command line that a command takes, with all that it needs.
func typed(t *testing.T, line string, c *cobra.Command) []string {
	args := strings.Fields(line)
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil {
			args = append(args, "--"+f.Name+"=chat")
		}
	})
	if c.Flags().Lookup("yes") != nil {
		args = append(args, "--yes")
	}
	if line == "memory rewind" {
		args = append(args, "--start")
	}
	if line == "memory note set" {
		args = append(args, "--active")
	}
	_, rest, _ := strings.Cut(c.Use, " ")
	for _, wanted := range strings.Fields(rest) {
		switch {
		case wanted == "<path>": // which is read before the service is asked
			args = append(args, t.TempDir())
		case strings.HasPrefix(wanted, "<"):
			args = append(args, "a1")
		}
	}
	return args
}

// A command line that is wrong ends with 2 and does nothing; what goes wrong with a right one ends with 1.
func TestEveryCommandTellsAWrongLineFromAFailure(t *testing.T) {
	t.Chdir(t.TempDir())
	const nowhere = "http://127.0.0.1:1"
	silent := map[string]string{
		"mcp": "asks the service once a client has asked it", "keys use": "keeps a key and asks nobody",
	}
	all := leaves(rootCommand(&console{}), nil)
	require.Greater(t, len(all), 40)
	for line, c := range all {
		if c.Hidden {
			continue
		}
		t.Run(line, func(t *testing.T) {
			right := typed(t, line, c)
			fails := func(code int, args ...string) {
				t.Helper()
				r := mneme(t, "hi\n", args...)
				require.Equal(t, code, r.code, "%s\n%s%s", args, r.stdout, r.stderr)
				require.Regexp(t, `^mneme: .`, r.stderr, args)
				require.Equal(t, code == exitUsage, strings.HasSuffix(r.stderr, "; see mneme --help\n"), r.stderr)
			}
			fails(exitUsage, append(right, "--no-such-flag")...)
			_, wanted, _ := strings.Cut(c.Use, " ")
			if !strings.HasSuffix(wanted, "...") {
				fails(exitUsage, append(right, strings.Split("a b c d", " ")...)...)
			}
			if strings.HasPrefix(wanted, "<") {
				fails(exitUsage, strings.Fields(line)...)
			}
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if flagKinds[f.Value.Type()] != "" && f.Name != "version" {
					fails(exitUsage, append(right, "--"+f.Name+"=x")...)
				}
			})
			if c.Flags().Lookup("url") == nil {
				return
			}
			fails(exitUsage, append(right, "--url=nope")...)
			if silent[line] == "" {
				fails(exitFailure, append(right, "--url="+nowhere)...)
			}
		})
	}
}

// A removed command or flag fails and names its replacement, which exists.
func TestRemovedCommandsNameTheirReplacements(t *testing.T) {
	t.Chdir(t.TempDir())
	named := regexp.MustCompile(`mneme (\w+)( \w+)?`)
	for line, replacement := range removedCommands {
		for _, more := range []string{"", " ls 1 --url=x", " --help"} {
			r := mneme(t, "", strings.Fields(line+more)...)
			want := "mneme: mneme " + line + " was removed: use " + replacement + "; see mneme --help\n"
			require.Equal(t, result{2, "", want}, r)
		}
		help := mneme(t, "", append([]string{"help"}, strings.Fields(line)...)...).stdout
		require.Contains(t, help, "was removed: use "+replacement)
		for _, command := range named.FindAllString(replacement, -1) {
			command = strings.TrimSuffix(strings.TrimPrefix(command, "mneme "), " with")
			require.Contains(t, mneme(t, "", append(strings.Fields(command), "--help")...).stdout, "Usage: mneme "+command)
		}
	}
	require.NotContains(t, mneme(t, "", "--help").stdout, "set-aside")
	require.Len(t, removedFlags, 4)
	for _, line := range []string{"memory ls --webmemory", "proxy use --proxy", "up --open", "config show --profiles"} {
		command, flag, _ := strings.Cut(line, " --")
		replacement := removedFlags["--"+flag] + removedFlags[line]
		require.NotEmpty(t, replacement, line)
		r := mneme(t, "", append(strings.Fields(command), "--"+flag+"=x")...)
		require.Equal(t, result{2, "", "mneme: --" + flag + " was removed: use " + replacement + "; see mneme --help\n"}, r)
	}
	require.Contains(t, mneme(t, "", "ingest", "--open").stderr, "unknown flag --open")
}

// What a command line says is wrong also where only the service knows that it is.
func TestWrongValuesAreWrongCommandLines(t *testing.T) {
	t.Chdir(t.TempDir())
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"code":"bad_request","message":"There is no such thing."}`))
	}))
	defer refusing.Close()
	at := " --url=" + refusing.URL
	for _, line := range []string{
		"memory search 1 x --from nonsense" + at, "memory note add 1 x" + at, "memory fork 1 2 --at x" + at,
		"usage --by nonsense" + at, "usage --by run --chat 1" + at, "usage --by run --json" + at,
		"usage --by run --chat 1 --json --since 7d" + at,
		"usage --by run --chat 1 --json --tenant a" + at, "keys create --name a --scopes nonsense" + at,
		"keys create --name a --scopes chat --rate x" + at,
		"tools call x {}" + at, "tools call x {" + at,
		"memory get 1 --last 0", "memory rm 1 a --scan", "memory note set 1 n", "memory rewind 1", "memory rewind 1 x --start",
		"memory note ls a/b --user", "memory rm a/b --user", "memory note add a/b x --user", "memory rm a --chats",
		"memory rm a analytic --user", "memory note add a x --user --subagent analytic", "tenants erase A/B", "tenants export A/B",
		"audit --since x", "keys create --name a --scopes chat --expires x",
		"up --offline --model gpt-4.1", "up --model ftp://x", "health nope", "keys use --url nope", "chat --key a\tb",
		"completion tcsh",
	} {
		r := mneme(t, "", strings.Split(line, " ")...)
		require.Equal(t, 2, r.code, "%s: %s", line, r.stderr)
	}
	// What these send is no part of the line.
	for _, line := range []string{"memory import 1" + at, "chat" + at, "health " + refusing.URL} {
		require.Equal(t, 1, mneme(t, "{}\n", strings.Split(line, " ")...).code, line)
	}
}

// Behind each command's name stands what it does, all of them in one column.
func TestHelpHasColumns(t *testing.T) {
	for _, line := range []string{"", "memory", "memory note", "proxy"} {
		_, list, _ := strings.Cut(mneme(t, "", append(strings.Fields(line), "--help")...).stdout, "\nCommands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		at := -1
		for _, entry := range strings.Split(list, "\n") {
			m := regexp.MustCompile(`^  (\S.*?)  +\S`).FindStringIndex(entry)
			require.NotNil(t, m, "%q has no space of two before what it does", entry)
			if at < 0 {
				at = m[1]
			}
			require.Equal(t, at, m[1], entry)
			require.True(t, utf8.ValidString(entry))
		}
	}
}

// A command finds the services of its folder: address and port are those of its mneme.yaml, or of the variables that
// the services take.
func TestACommandTalksToTheServicesOfItsFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	s := remembering(t)
	addr := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := strings.Cut(addr, ":")
	call := func(environ []string, args ...string) string {
		var out strings.Builder
		run(t.Context(), args, &console{environ: environ, stdin: strings.NewReader(""), stdout: &out, stderr: &out})
		return out.String()
	}
	settings := "webmemory: {listen: " + addr + "}\napiserver: {listen: \"127.0.0.1:2\"}\nproxy: {listen: \":3\"}\n"
	require.NoError(t, os.WriteFile("mneme.yaml", []byte(settings), 0o600))
	require.Contains(t, call(nil, "memory", "ls"), "12345    analytic  12")
	require.Contains(t, call(nil, "health"), `"status"`)
	require.Contains(t, call(nil, "keys", "ls", "--help"), s.URL)
	require.Contains(t, call(nil, "tools", "ls"), "nothing answers at http://127.0.0.1:2:")
	require.Contains(t, call(nil, "proxy", "use"), "nothing listens on http://127.0.0.1:3:")

	settings = "webmemory: {listen: \"0.0.0.0:" + port + "\", no_such_key: 1}\n"
	require.NoError(t, os.WriteFile("mneme.yaml", []byte(settings), 0o600))
	require.Contains(t, call(nil, "memory", "ls"), "12345    analytic  12")
	require.Contains(t, call([]string{"MNEME_URL=http://127.0.0.1:1"}, "health"), `"status"`)
	require.Contains(t, call([]string{"MNEME_URL=http://127.0.0.1:1"}, "memory", "ls"), "nothing listens on http://127")
	require.Contains(t, call([]string{"MNEME_WEBMEMORY_LISTEN=127.0.0.1:1"}, "health"), "nothing listens on 127.0.0.1:1")
	require.Contains(t, call([]string{"MNEME_PROXY_LISTEN=[::]:4"}, "proxy", "use"), "listens on http://127.0.0.1:4:")

	require.NoError(t, os.Rename("mneme.yaml", "elsewhere.yaml"))
	require.Contains(t, call(nil, "chat", "--help"), "http://127.0.0.1:8080")
	require.Contains(t, call([]string{"MNEME_CONFIG=elsewhere.yaml"}, "memory", "ls"), "12345    analytic  12")
}
