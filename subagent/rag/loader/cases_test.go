package loader

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
	"mneme/subagent/rag/chunk"
)

// TestDocumentCasesOutsideData loads files with one odd thing each and checks their text by the table in
// EXPECTED.md.
func TestDocumentCasesOutsideData(t *testing.T) {
	t.Parallel()
	dir := outsidedata.Path(t, "cases", "documents")
	table, err := os.ReadFile(filepath.Join(dir, "EXPECTED.md"))
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		cells := cellsOf(line)
		if len(cells) != 4 || !strings.Contains(cells[0], ".") {
			continue
		}
		t.Run(cells[0], func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join(dir, cells[0]))
			require.NoError(t, err)
			d, err := loadText(t, cells[0], string(data), Limits{})
			require.Empty(t, caseFault(cells, d, err))
		})
	}
}

// cellsOf returns the cells of a table's row, without the escapes of bars.
func cellsOf(line string) []string {
	const bar = "\x00"
	line = strings.Trim(strings.ReplaceAll(line, `\|`, bar), " \n")
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	var cells []string
	for cell := range strings.SplitSeq(line, "|") {
		cells = append(cells, strings.TrimSpace(strings.ReplaceAll(cell, bar, "|")))
	}
	return cells
}

// caseFault returns what is wrong with the document of a case, "" if nothing is.
func caseFault(cells []string, d chunk.Document, err error) string {
	pattern := strings.Trim(cells[3], "`")
	pattern, encoded := strings.CutPrefix(pattern, "ENC:")
	if err != nil && encoded && CodeOf(err) == Encoding {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	text := d.Title + "\n" + d.Text + "\n"
	if len(d.Skipped) > 0 {
		text += "skipped\n"
	}
	for _, want := range quoted(cells[1]) {
		section, isSection := strings.CutPrefix(want, "SECTION:")
		found := strings.Contains(text, want)
		if isSection {
			found = slices.ContainsFunc(d.Sections, func(s chunk.Section) bool { return slices.Contains(s.Path, section) })
		}
		if !found {
			return "the text lacks " + want
		}
	}
	for _, not := range quoted(cells[2]) {
		if strings.Contains(text, not) {
			return "the text has " + not
		}
	}
	chosen, passages := strings.CutPrefix(pattern, "PASSAGES:")
	if !passages {
		if !regexp.MustCompile(pattern).MatchString(text) {
			return "the text does not match " + pattern
		}
		return ""
	}
	// Each passage that matches the first pattern has to match the second one.
	chosen, pattern, _ = strings.Cut(chosen, ":")
	for _, p := range chunk.Split(d, chunk.Default()) {
		if regexp.MustCompile(chosen).MatchString(p.Text) && !regexp.MustCompile(pattern).MatchString(p.Text) {
			return "a passage does not match " + pattern
		}
	}
	return ""
}

func quoted(cell string) []string {
	var list []string
	for part := range strings.SplitSeq(cell, "; ") {
		if part = strings.Trim(part, "`"); part != "" {
			list = append(list, part)
		}
	}
	return list
}
