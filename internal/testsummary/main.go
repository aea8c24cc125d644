// Command testsummary reads the output of go test -json and prints the slowest tests and the skipped tests by reason.
//
//	testsummary FILE ...
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// slowest is the number of listed tests.
const slowest = 10

// event is one line of go test -json (see go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// summary collects the events of all files.
type summary struct {
	tests   map[string]float64 // seconds of each finished top-level test
	reasons map[string]int     // skipped tests, by reason
	last    map[string]string  // the last log line of each running test
}

// logged matches a line of t.Log or t.Skip and captures its text.
var logged = regexp.MustCompile(`^\s+[\w.-]+\.go:\d+: (.+)`)

func main() {
	s := summary{tests: map[string]float64{}, reasons: map[string]int{}, last: map[string]string{}}
	for _, name := range os.Args[1:] {
		if err := s.file(name); err != nil {
			fmt.Fprintln(os.Stderr, "testsummary:", err)
			os.Exit(1)
		}
	}
	s.print(os.Stdout)
}

// file adds the events of a file. It ignores lines that are not JSON, because a crashed test process truncates its last line.
func (s summary) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Test != "" {
			s.add(e)
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (s summary) add(e event) {
	name := strings.TrimPrefix(e.Package, "mneme/") + " " + e.Test
	switch e.Action {
	case "output":
		if m := logged.FindStringSubmatch(e.Output); m != nil {
			s.last[name] = m[1]
		}
	case "skip":
		s.reasons[cmp.Or(s.last[name], "no reason given")]++
	case "pass", "fail":
		if !strings.Contains(e.Test, "/") {
			s.tests[name] = max(s.tests[name], e.Elapsed)
		}
	}
}

// print writes the lists, largest first.
func (s summary) print(out io.Writer) {
	fmt.Fprintf(out, "\nslowest of %d tests:\n", len(s.tests))
	for _, name := range largest(s.tests)[:min(slowest, len(s.tests))] {
		fmt.Fprintf(out, "%7.1f s  %s\n", s.tests[name], name)
	}
	if len(s.reasons) > 0 {
		fmt.Fprintln(out, "\nskipped tests, by reason:")
	}
	for _, reason := range largest(s.reasons) {
		fmt.Fprintf(out, "%7d    %s\n", s.reasons[reason], reason)
	}
}

// largest returns the keys of m by descending value, then by name.
func largest[V cmp.Ordered](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	return keys
}
