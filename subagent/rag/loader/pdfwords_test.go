package loader

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

// BenchmarkPDFWords compares the words that are read from the PDFs in the folder
// REAL_FILES (scripts/real-files) with those that Poppler's pdftotext reads, another
// engine: neither is the truth. It prints the files in which less than .95 of
// pdftotext's words are found, and reports the share over all.
func BenchmarkPDFWords(b *testing.B) {
	dir := os.Getenv("REAL_FILES")
	if _, err := exec.LookPath("pdftotext"); dir == "" || err != nil {
		b.Skip("needs pdftotext (poppler-utils) and REAL_FILES=DIR, a folder that scripts/real-files DIR built")
	}
	var files []string
	require.NoError(b, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".pdf" {
			files = append(files, path)
		}
		return err
	}))
	texts := make([]string, len(files)) // "" of what is refused
	for b.Loop() {
		for i, path := range files {
			f, err := os.Open(path)
			require.NoError(b, err)
			d, _ := Load(b.Context(), path, "", f, Limits{})
			texts[i] = d.Text
			require.NoError(b, f.Close())
		}
	}
	compared, good, best, all := 0, 0, 0, 0.0
	for i, path := range files {
		theirs, err := exec.Command("pdftotext", "-enc", "UTF-8", path, "-").Output()
		wanted := wordCounts(string(theirs))
		if err != nil || len(wanted) < 20 {
			continue
		}
		ours, total, found := wordCounts(texts[i]), 0, 0
		for word, n := range wanted {
			total, found = total+n, found+min(n, ours[word])
		}
		recall := float64(found) / float64(total)
		compared, all = compared+1, all+recall
		if recall >= .95 {
			good++
		} else {
			b.Logf("%.3f of %d words: %s", recall, total, strings.TrimPrefix(path, dir))
		}
		if recall >= .99 {
			best++
		}
	}
	b.ReportMetric(float64(compared), "files")
	b.ReportMetric(float64(good), "files≥.95")
	b.ReportMetric(float64(best), "files≥.99")
	b.ReportMetric(all/float64(max(compared, 1)), "recall")
}

// wordCounts counts words, not the signs of formulas; in scripts without spaces each
// character is one.
func wordCounts(text string) map[string]int {
	text = strings.NewReplacer("-\n", "", "‐\n", "", "\u00ad\n", "", "\u00ad", "").Replace(norm.NFKC.String(text))
	counts := map[string]int{}
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.M, unicode.N)
	}) {
		if strings.ContainsFunc(word, func(r rune) bool {
			return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
		}) {
			for _, r := range word {
				counts[string(r)]++
			}
			continue
		}
		if utf8.RuneCountInString(word) > 2 {
			counts[word]++
		}
	}
	return counts
}
