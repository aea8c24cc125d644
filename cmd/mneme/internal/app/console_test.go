package app_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is a command of a page, and what the page says that it prints.
type example struct {
	page    string
	line    int // on which the command stands
	command string
	output  string
}

// console finds the blocks of a page that show commands with their output.
var console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// consoleExamples are the commands in README.md, TUTORIAL.md and docs, by page and in the order of the page.
func consoleExamples(t *testing.T) map[string][]example {
	t.Helper()
	root := filepath.Join("..", "..", "..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	found := map[string][]example{}
	for _, path := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "TUTORIAL.md")) {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		page, text := filepath.Base(path), string(raw)
		for _, at := range console.FindAllStringSubmatchIndex(text, -1) {
			line := 1 + strings.Count(text[:at[2]], "\n")
			var all []example
			continued := false
			for l := range strings.Lines(text[at[2]:at[3]]) {
				command, begins := strings.CutPrefix(l, "$ ")
				switch {
				case begins:
					all = append(all, example{page: page, line: line, command: command})
				case len(all) == 0:
					t.Fatalf("%s:%d: a console block begins with a command, behind \"$ \"", page, line)
				case continued:
					all[len(all)-1].command += l
				case strings.TrimSpace(l) != "": // an empty line sets commands apart
					all[len(all)-1].output += l
				}
				continued = (begins || continued) && strings.HasSuffix(l, "\\\n")
				line++
			}
			found[page] = append(found[page], all...)
		}
	}
	return found
}

// toolsOf is the first configuration on a page that gives an agent a REST call; empty for none.
func toolsOf(t *testing.T, page string) string {
	text, err := os.ReadFile(page)
	if os.IsNotExist(err) {
		text, err = os.ReadFile(filepath.Join(filepath.Dir(page), "docs", filepath.Base(page)))
	}
	require.NoError(t, err)
	for _, block := range fenced.FindAllSubmatch(text, -1) {
		if strings.Contains(string(block[1]), "- http:") {
			return string(block[1])
		}
	}
	return ""
}

// varying lists the parts of an output that differ from run to run, with the names that replace
// them in the comparison. A figure that changes with the documentation is not one of them: pages
// show it as "…", because a masked figure would become wrong without a failing test.
var varying = []struct {
	part *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`\b1[0-9]{9}(\.[0-9]+)?\b`), "TIMESTAMP"}, // a whole second has no fraction
	{regexp.MustCompile(`\b20[0-9]{2}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}`), "TIME"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9]+(\.[0-9]+)? m?s\b`), "DURATION"},
	{regexp.MustCompile(`\bgo1\.[0-9.]+ [a-z0-9]+/[a-z0-9]+`), "GO"},
	{regexp.MustCompile(`mneme ([0-9.]+)( [0-9a-f]{12}(\+changes)?)?`), "mneme $1"},
}

// alike says whether an output is what a page shows: equal but for what varies. "…" in
// the page stands for the rest of a line or a part of it, alone on a line for any lines.
func alike(shown, printed string) bool {
	for _, v := range varying {
		shown, printed = v.part.ReplaceAllString(shown, v.name), v.part.ReplaceAllString(printed, v.name)
	}
	var compact strings.Builder // without the lines that are empty, as in the page
	for l := range strings.Lines(printed) {
		if strings.TrimSpace(l) != "" {
			compact.WriteString(l)
		}
	}
	pattern := regexp.QuoteMeta(shown)
	pattern = regexp.MustCompile(`(?m)^…\n`).ReplaceAllString(pattern, `(?:.*\n)*?`)
	pattern = regexp.MustCompile(` ?… ?`).ReplaceAllString(pattern, `.*?`)
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(compact.String())
}

// What README.md, TUTORIAL.md and docs show of the command line is what it prints: the commands of
// a page run one after the other in a shell, against a mneme of their own with the
// offline model, in a folder that has the documentation in docs.
func TestTheOutputsInTheDocumentation(t *testing.T) {
	t.Parallel()
	bin := filepath.Dir(program(t))
	root := filepath.Join("..", "..", "..", "..")
	all := consoleExamples(t)
	require.Contains(t, all, "README.md")
	for page, examples := range all {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(filepath.Join(dir, "docs"), os.DirFS(filepath.Join(root, "docs"))))
			here := strings.NewReplacer("go run ./cmd/mneme", "mneme",
				"127.0.0.1:8080", s.web, "127.0.0.1:8081", s.setting("MNEME_APISERVER_LISTEN"), "127.0.0.1:8082",
				s.setting("MNEME_PROXY_LISTEN"),
				"redis-cli -p 6380", "redis-cli -p "+strings.TrimPrefix(s.setting("MNEME_REDIS_EMBEDDED_LISTEN"), "127.0.0.1:"))
			if tools := toolsOf(t, filepath.Join(root, page)); tools != "" { // there from the start
				file := filepath.Join(dir, "mneme.yaml")
				require.NoError(t, os.WriteFile(file, []byte(here.Replace(tools)), 0o600))
				s.environ = append(s.environ, "MNEME_CONFIG="+file)
			}
			s.start("up")
			for _, e := range examples {
				if strings.HasPrefix(e.command, "pkill -9 -x mneme") { // the processes of other tests must live
					s.kill("up")
					s.start("up")
					continue
				}
				for _, tool := range []string{"curl", "jq", "redis-cli"} {
					if _, err := exec.LookPath(tool); err != nil && regexp.MustCompile(`\b`+tool+`\b`).MatchString(e.command) {
						t.Skipf("%s:%d: %s is not installed", e.page, e.line, tool)
					}
				}
				cmd := exec.Command("sh", "-c", here.Replace(e.command))
				cmd.Dir, cmd.Env = dir, append(s.environ, "PATH="+bin+":"+os.Getenv("PATH"), "MNEME_URL=http://"+s.web, "TZ=UTC")
				var printed, complaint bytes.Buffer
				cmd.Stdout, cmd.Stderr = &printed, &complaint
				err := cmd.Run()
				require.NoError(t, err, "%s:%d: $ %s%s%s", e.page, e.line, e.command, printed.String(), complaint.String())
				if !alike(e.output, printed.String()) {
					t.Errorf("%s:%d does not show what the command prints. Paste this there, with … for what matters to nobody:\n$ "+
						"%s%s",
						e.page, e.line, e.command, printed.String())
				}
			}
		})
	}
}

// The comparison itself: what varies may differ, and nothing else.
func TestAnOutputThatIsAlike(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		shown, printed string
		want           bool
	}{
		{"a\n", "a\n", true},
		{"a\n", "b\n", false},
		{"a\n", "a\nb\n", false},
		{"a\n…\nd\n", "a\n\nb\nc\nd\n", true},
		{"a\n…\nd\n", "a\nd\ne\n", false},
		{`{"role":"x", … "n":1}` + "\n", `{"role":"x","m":2, "n":1}` + "\n", true},
		{`{"role":"x", … "n":1}` + "\n", "{\"role\":\"x\",\n \"n\":1}\n", false},
		{"10 new (141 passages, 0.1 s)\n", "10 new (141 passages, 2.4 s)\n", true},
		{"10 new (141 passages, 0.1 s)\n", "10 new (152 passages, 0.1 s)\n", false},
		{"… new, 0 changed (…)\n", "31 new, 0 changed (152 passages, 0.1 s)\n", true},
		{"ferry.md#1\n", "ferry.md#2\n", false},
		{"at 1795250568.092\n", "at 1795250999.1\n", true},
	} {
		require.Equal(t, c.want, alike(c.shown, c.printed), "%d: %q", i, c.shown)
	}
}
