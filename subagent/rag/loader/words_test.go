package loader

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"mneme/subagent/rag/chunk"
)

// wordReaders are the programs whose words are compared with ours, by extension.
var wordReaders = map[string][]string{
	".pdf":  {"pdftotext", "-enc", "UTF-8", "FILE", "-"},
	".docx": pandocWords, ".odt": pandocWords, ".rtf": pandocWords, ".epub": pandocWords,
}

var pandocWords = []string{"pandoc", "--to=plain", "--wrap=none", "FILE"}

// BenchmarkWords compares the words that are read from the files in the folder REAL_FILES (scripts/real-files, or any
// other) with the words from Poppler's pdftotext and pandoc. Neither is the truth. It prints files with less than .95 of
// the other program's words, and reports the mean share by extension. Files with fewer than ten
// words do not count.
func BenchmarkWords(b *testing.B) {
	dir := os.Getenv("REAL_FILES")
	if dir == "" {
		b.Skip("needs REAL_FILES=DIR, a folder that scripts/real-files DIR built")
	}
	for _, extension := range slices.Sorted(maps.Keys(wordReaders)) {
		b.Run(extension[1:], func(b *testing.B) { compareWords(b, dir, extension, wordReaders[extension]) })
	}
}

func compareWords(b *testing.B, dir, extension string, reader []string) {
	if _, err := exec.LookPath(reader[0]); err != nil {
		b.Skip("needs " + reader[0])
	}
	var files []string
	require.NoError(b, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.EqualFold(filepath.Ext(path), extension) {
			files = append(files, path)
		}
		return err
	}))
	texts, refused := make([]string, len(files)), make([]error, len(files))
	for b.Loop() {
		for i, path := range files {
			f, err := os.Open(path)
			require.NoError(b, err)
			var d chunk.Document
			d, refused[i] = Load(b.Context(), path, "", f, Limits{})
			texts[i] = d.Text
			require.NoError(b, f.Close())
		}
	}
	compared, good, all := 0, 0, 0.0
	for i, path := range files {
		args := slices.Clone(reader[1:])
		args[slices.Index(args, "FILE")] = path
		ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second) // some of the files are bombs
		theirs, err := exec.CommandContext(ctx, reader[0], args...).Output()
		cancel()
		wanted := wordCounts(string(theirs))
		ours, total, found := wordCounts(texts[i]), 0, 0
		for word, n := range wanted {
			total, found = total+n, found+min(n, ours[word])
		}
		if err != nil || total < 10 {
			continue
		}
		recall := float64(found) / float64(total)
		compared, all = compared+1, all+recall
		if recall >= .95 {
			good++
		} else {
			b.Logf("%.3f of %d words: %s %v", recall, total, strings.TrimPrefix(path, dir), refused[i])
		}
	}
	b.ReportMetric(float64(compared), "files")
	b.ReportMetric(float64(good), "files≥.95")
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
