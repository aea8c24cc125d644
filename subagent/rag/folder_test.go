package rag

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory"
)

// write puts files below dir; a name with slashes makes directories.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// try runs search_documents as a model does.
func try(s *Session, query string) (answer, error) {
	var a answer
	arguments, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		return a, err
	}
	text, err := s.Tools()[0].Call(context.Background(), memory.ToolCall{Function: memory.FunctionCall{Arguments: string(arguments)}})
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal([]byte(text), &a)
}

func ask(t *testing.T, s *Session, query string) answer {
	t.Helper()
	a, err := try(s, query)
	require.NoError(t, err)
	return a
}

func ids(a answer) []string {
	list := []string{}
	for _, p := range a.Passages {
		list = append(list, p.ID)
	}
	return list
}

func TestSearchFindsPassages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"guide.md":          "# Guide\n\nWelcome.\n\n## Holidays\n\nEveryone has 28 days of <paid> leave & more.\n\n## Travel\n\nTrains before planes.",
		"ru/otpusk.txt":     "Отпуск оформляется за две недели.\n\nЁлки украшают в декабре.",
		"ru/deep/note.MD":   "Совещания проходят по вторникам.",
		"upper.MARKDOWN":    "Parking is free on Sundays.",
		"table.csv":         "leave,28",
		".hidden.txt":       "leave leave leave",
		".git/objects.txt":  "leave leave leave",
		"empty.txt":         "",
		"windows.txt":       "\ufeffLunch at noon.\r\n\r\nDinner at\x07 six.\r\n",
		"many words.txt":    strings.Repeat("padding words of no interest ", 20),
		"ru/переговоры.txt": "Переговорная закрыта.",
	})
	s := NewFolder(dir, zerolog.Nop()).NewSession()

	a := ask(t, s, "How many days of leave do I have?")
	require.Equal(t, "ok", a.Status)
	require.Equal(t, "How many days of leave do I have?", a.Query)
	require.Empty(t, a.Skipped)
	best := a.Passages[0]
	require.Positive(t, best.Score)
	best.Score = 0
	require.Equal(t, foundPassage{
		ID: "guide.md#2", N: 1, DocID: "guide.md", Title: "Guide", Source: "guide.md", Section: "Guide > Holidays",
		Text: "Everyone has 28 days of <paid> leave & more.",
	}, best)

	require.Equal(t, []string{"ru/otpusk.txt#1"}, ids(ask(t, s, "отпуска"))[:1])
	require.Equal(t, []string{"ru/otpusk.txt#1"}, ids(ask(t, s, "ёлка")))
	require.Equal(t, []string{"ru/otpusk.txt#1"}, ids(ask(t, s, "ЕЛКУ")))
	require.Equal(t, []string{"ru/deep/note.MD#1"}, ids(ask(t, s, "Когда совещание?")))
	require.Equal(t, []string{"upper.MARKDOWN#1"}, ids(ask(t, s, "park on sunday")))
	require.Equal(t, "Lunch at noon.\n\nDinner at six.", ask(t, s, "dinner").Passages[0].Text)
	require.Equal(t, []string{"ru/переговоры.txt#1"}, ids(ask(t, s, "переговорной")))
}

func TestSearchGivesTheBestFive(t *testing.T) {
	dir := t.TempDir()
	for i := range 9 {
		write(t, dir, map[string]string{fmt.Sprintf("%d.txt", i): strings.Repeat("apple ", i+1) + strings.Repeat("pear ", 9-i)})
	}
	s := NewFolder(dir, zerolog.Nop()).NewSession()
	a := ask(t, s, "apples")
	require.Equal(t, []string{"8.txt#1", "7.txt#1", "6.txt#1", "5.txt#1", "4.txt#1"}, ids(a))
	for i, p := range a.Passages {
		require.Equal(t, i+1, p.N)
	}
}

func TestSearchOfNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docs")
	f := NewFolder(dir, zerolog.Nop())
	s := f.NewSession()
	a := ask(t, s, "anything")
	require.Equal(t, answer{Status: "empty", Query: "anything", Note: "the documents folder does not exist", Passages: []foundPassage{}}, a)

	require.NoError(t, os.Mkdir(dir, 0o755))
	require.Equal(t, "the documents folder holds no usable text files", ask(t, s, "anything").Note)

	write(t, dir, map[string]string{"a.txt": "something"})
	require.Equal(t, "no passage contains a word of the query", ask(t, s, "anything").Note)
	require.Equal(t, "empty", ask(t, s, "what is the").Status)
	require.Equal(t, "ok", ask(t, s, "something").Status)

	require.NoError(t, os.RemoveAll(dir))
	require.Equal(t, "the documents folder does not exist", ask(t, s, "something").Note)
}

func TestSearchArguments(t *testing.T) {
	s := NewFolder(t.TempDir(), zerolog.Nop()).NewSession()
	require.Equal(t, "search_documents", s.Tools()[0].Spec().Name)
	require.True(t, json.Valid(s.Tools()[0].Spec().Parameters))
	for arguments, want := range map[string]string{
		``:               `must be a JSON object with the string field "query"`,
		`{"query":5}`:    `must be a JSON object with the string field "query"`,
		`{}`:             `the field "query" must be set`,
		`{"query":" "}`:  `the field "query" must be set`,
		`{"query":null}`: `the field "query" must be set`,
		`{"query":"` + strings.Repeat("ж", 1001) + `"}`: `the field "query" has 1001 characters, the limit is 1000`,
	} {
		_, err := s.Tools()[0].Call(context.Background(), memory.ToolCall{Function: memory.FunctionCall{Arguments: arguments}})
		require.ErrorContains(t, err, want, arguments)
	}
}

func TestSearchEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "apple"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := NewFolder(dir, zerolog.Nop()).search(ctx, "apple")
	require.ErrorIs(t, err, context.Canceled)
}

func TestFolderThatIsAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"docs": "no directory"})
	_, _, err := NewFolder(filepath.Join(dir, "docs"), zerolog.Nop()).search(context.Background(), "apple")
	require.EqualError(t, err, "the documents folder cannot be read: not a directory")
}

func TestUnusableFilesAreReported(t *testing.T) {
	outside := t.TempDir()
	write(t, outside, map[string]string{"secret.txt": "apple secret", "more/secret.txt": "apple secret"})
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"good.txt":         "apple pie",
		"binary.txt":       "apple \x00\x01",
		"latin1.txt":       "apple caf\xe9",
		"huge.txt":         strings.Repeat("apple ", 2<<20/6+1),
		"dir.txt/inner.md": "apple inside a directory",
	})
	link := func(target, name string) { require.NoError(t, os.Symlink(target, filepath.Join(dir, name))) }
	link("good.txt", "inside.txt")
	link(filepath.Join(outside, "secret.txt"), "outside.txt")
	link("../"+filepath.Base(outside)+"/secret.txt", "relative.txt")
	link(outside, "folder")
	link("loop.txt", "loop.txt")
	link(".", "around")
	link("dir.txt", "linked-dir.txt")
	link("gone.txt", "dangling.txt")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.txt"), 0o644))

	var log bytes.Buffer
	s := NewFolder(dir, zerolog.New(&log)).NewSession()
	a := ask(t, s, "apple")
	require.ElementsMatch(t, []string{"good.txt#1", "inside.txt#1", "dir.txt/inner.md#1"}, ids(a))
	want := []string{
		"binary.txt: binary, not text",
		"huge.txt: larger than 2097152 bytes",
		"latin1.txt: not UTF-8 text",
		"linked-dir.txt: not a regular file",
		"loop.txt: too many levels of symbolic links",
		"outside.txt: path escapes from parent",
		"pipe.txt: not a regular file",
		"relative.txt: path escapes from parent",
	}
	require.Equal(t, want, a.Skipped)
	require.NotContains(t, fmt.Sprint(a), "secret apple")

	logged := strings.Count(log.String(), "document left out")
	require.Equal(t, len(want), logged)
	ask(t, s, "apple")
	require.Equal(t, logged, strings.Count(log.String(), "document left out"), "logged once per change")

	write(t, dir, map[string]string{"huge.txt": "apple small again"})
	require.Contains(t, ids(ask(t, s, "apple small")), "huge.txt#1")
}

func TestManyUnusableFilesAreSummedUp(t *testing.T) {
	dir := t.TempDir()
	for i := range 15 {
		write(t, dir, map[string]string{fmt.Sprintf("%02d.txt", i): "\xff"})
	}
	a := ask(t, NewFolder(dir, zerolog.Nop()).NewSession(), "apple")
	require.Len(t, a.Skipped, maxSkipped+1)
	require.Equal(t, "and 5 more", a.Skipped[maxSkipped])
}

// The files behind the limit of the whole folder are left out, and come in when
// there is room again.
func TestFolderSizeLimit(t *testing.T) {
	dir := t.TempDir()
	f := NewFolder(dir, zerolog.Nop())
	f.limits.folder = 20
	write(t, dir, map[string]string{"a.txt": "0123456789", "b.txt": "0123456789", "c.txt": "apple"})
	s := f.NewSession()
	a := ask(t, s, "apple")
	require.Equal(t, "empty", a.Status)
	require.Equal(t, []string{"c.txt: the files before it fill the 20 bytes that one folder may hold"}, a.Skipped)

	require.NoError(t, os.Remove(filepath.Join(dir, "a.txt")))
	require.Equal(t, []string{"c.txt#1"}, ids(ask(t, s, "apple")))
}

func TestFolderCountLimits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "apple", "b.png": "", "c.txt": "apple", "d.txt": "apple"})
	f := NewFolder(dir, zerolog.Nop())
	f.limits.files = 2
	a := ask(t, f.NewSession(), "apple")
	require.Equal(t, []string{"a.txt#1", "c.txt#1"}, ids(a))
	require.Equal(t, []string{"d.txt: the folder has more than 2 text files, this one and all behind it are left out"}, a.Skipped)

	f = NewFolder(dir, zerolog.Nop())
	f.limits.entries = 3 // the folder itself is one
	a = ask(t, f.NewSession(), "apple")
	require.Equal(t, []string{"a.txt#1"}, ids(a))
	require.Equal(t, []string{"c.txt: the folder has more than 3 entries, this one and all behind it are left out"}, a.Skipped)
}

func TestChangesAreSeenByTheNextSearch(t *testing.T) {
	dir := t.TempDir()
	s := NewFolder(dir, zerolog.Nop()).NewSession()
	write(t, dir, map[string]string{"a.txt": "apple one"})
	require.Equal(t, []string{"a.txt#1"}, ids(ask(t, s, "apple")))

	t.Run("many rewrites of the same size", func(t *testing.T) {
		for i := range 50 {
			word := fmt.Sprintf("word%02d", i)
			write(t, dir, map[string]string{"a.txt": word})
			require.Equal(t, []string{"a.txt#1"}, ids(ask(t, s, word)))
		}
	})
	t.Run("a rewrite of an old file", func(t *testing.T) {
		path := filepath.Join(dir, "a.txt")
		old := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(path, old, old))
		require.Equal(t, "ok", ask(t, s, "word49").Status)
		write(t, dir, map[string]string{"a.txt": "wordxx"})
		require.Equal(t, "empty", ask(t, s, "word49").Status)
		require.Equal(t, "ok", ask(t, s, "wordxx").Status)
	})
	t.Run("new, renamed, deleted", func(t *testing.T) {
		write(t, dir, map[string]string{"sub/b.txt": "banana"})
		require.Equal(t, []string{"sub/b.txt#1"}, ids(ask(t, s, "banana")))
		require.NoError(t, os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "other")))
		require.Equal(t, []string{"other/b.txt#1"}, ids(ask(t, s, "banana")))
		require.NoError(t, os.Remove(filepath.Join(dir, "other", "b.txt")))
		require.Empty(t, ids(ask(t, s, "banana")))
	})
}

// A file that did not change is not read again: its content could be wrong and
// nobody would notice.
func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	old := time.Now().Add(-time.Hour)
	write(t, dir, map[string]string{"a.txt": "apple"})
	require.NoError(t, os.Chtimes(path, old, old))
	f := NewFolder(dir, zerolog.Nop())
	first, err := f.current(context.Background())
	require.NoError(t, err)
	second, err := f.current(context.Background())
	require.NoError(t, err)
	require.Same(t, first.documents["a.txt"], second.documents["a.txt"])
}

func TestNumbersAndCitations(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"a.md":  "# Fruit\n\nApples are red. Pears are green. " + strings.Repeat("Plums are of no interest here. ", 10),
		"b.txt": "Бананы желтые.",
	})
	f := NewFolder(dir, zerolog.Nop())
	s := f.NewSession()
	require.Empty(t, s.Cite("Nothing was searched [1]."))
	require.Equal(t, 1, ask(t, s, "apples").Passages[0].N)
	require.Equal(t, 2, ask(t, s, "банан").Passages[0].N)
	require.Equal(t, 1, ask(t, s, "pear").Passages[0].N, "the same passage keeps its number")

	cited := s.Cite("Бананы жёлтые [2], pears are green [1][2]. See [3], [0], [12345678], [x] and [ 1 ].")
	require.Len(t, cited, 2)
	require.Equal(t, 1, cited[0].N)
	require.Equal(t, "a.md#1", cited[0].PassageID)
	require.Equal(t, "a.md", cited[0].DocID)
	require.Equal(t, "Fruit", cited[0].Title)
	require.Equal(t, "a.md", cited[0].Source)
	require.Equal(t, "Pears are green.", cited[0].Quote)
	require.Equal(t, "Бананы желтые.", cited[1].Quote)

	write(t, dir, map[string]string{"b.txt": "Бананы зелёные."})
	require.Equal(t, 3, ask(t, s, "банан").Passages[0].N, "another text is another passage")
	require.Equal(t, "Бананы желтые.", s.Cite("[2]")[0].Quote)

	require.Equal(t, 1, ask(t, f.NewSession(), "банан").Passages[0].N, "every run counts from 1")
	require.Empty(t, f.NewSession().Cite("[1]"))
}

func TestQuotesAreShortPiecesOfThePassage(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("ж", 800),
		strings.Repeat("слово ", 100),
		strings.Repeat("Short one. ", 70),
		"Line one\nline two of the same sentence.\n\nSecond paragraph",
	} {
		for _, response := range []string{"", "слово", "second", "short line"} {
			q := quote(text, response)
			require.NotEmpty(t, q)
			require.Contains(t, text, q)
			require.LessOrEqual(t, runes(q), maxQuote)
		}
	}
	require.Equal(t, "Line one\nline two of the same sentence.", quote("Line one\nline two of the same sentence.\n\nSecond paragraph", "lines"))
}

// Searches, citations and changes at the same time: every answer is of one state
// of each file, and numbers never mean two passages.
func TestConcurrentSearches(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		write(t, dir, map[string]string{fmt.Sprintf("%d.txt", i): fmt.Sprintf("apple number%d", i)})
	}
	s := NewFolder(dir, zerolog.Nop()).NewSession()
	var (
		mu    sync.Mutex
		meant = map[int]string{}
		group sync.WaitGroup
	)
	for worker := range 4 {
		group.Go(func() {
			for i := range 15 {
				name := filepath.Join(dir, fmt.Sprintf("changing%d.txt", worker))
				if i%3 == 2 {
					os.Remove(name)
				} else if os.WriteFile(name, fmt.Appendf(nil, "apple change%d", i), 0o644) != nil {
					t.Error("the test's file cannot be written")
				}
				one, err := try(s, fmt.Sprintf("number%d", (worker*5+i)%20))
				if err != nil || len(one.Passages) != 1 {
					t.Errorf("%d passages for one document, error %v", len(one.Passages), err)
				}
				many, err := try(s, "apple")
				if err != nil || len(many.Passages) != maxPassages {
					t.Errorf("%d passages for many documents, error %v", len(many.Passages), err)
				}
				for _, p := range append(one.Passages, many.Passages...) {
					mu.Lock()
					if before, ok := meant[p.N]; ok && before != p.ID+p.Text {
						t.Errorf("number %d means %q and %q", p.N, before, p.ID+p.Text)
					}
					meant[p.N] = p.ID + p.Text
					mu.Unlock()
					if c := s.Cite(fmt.Sprintf("[%d]", p.N)); len(c) != 1 || c[0].PassageID != p.ID {
						t.Errorf("number %d cites %v", p.N, c)
					}
				}
			}
		})
	}
	group.Wait()
}
