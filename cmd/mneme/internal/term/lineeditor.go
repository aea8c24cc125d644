package term

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/peterh/liner"
)

const (
	maxHistory     = 1000 // lines that are kept
	maxHistoryLine = 4000 // bytes, because the library ends the history at a longer line
)

// LineEditor reads lines from the terminal of this process. Only one can be open.
type LineEditor struct {
	state   *liner.State
	history string // path of a file with earlier lines
}

// OpenLineEditor configures the terminal until Close. Errors of the history file are ignored: it is a convenience.
func OpenLineEditor(history string) *LineEditor {
	e := &LineEditor{liner.NewLiner(), history}
	e.state.SetCtrlCAborts(true)
	e.state.SetMultiLineMode(true) // long lines wrap
	e.state.SetBeep(false)
	for _, line := range loadHistory(history) {
		e.state.AppendHistory(line)
	}
	return e
}

// loadHistory returns the last lines of a file. It shortens a file that has grown to twice as many.
func loadHistory(path string) (lines []string) {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if line = Clean(strings.TrimSpace(line)); line != "" && len(line) <= maxHistoryLine && utf8.ValidString(line) {
			lines = append(lines, line)
		}
	}
	grown := len(lines) > 2*maxHistory
	lines = lines[max(0, len(lines)-maxHistory):]
	if grown {
		_ = os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	}
	return lines
}

// ReadLine returns the next line. Ctrl-C, and Ctrl-D on an empty line, return io.EOF.
func (e *LineEditor) ReadLine(prompt string) (string, error) {
	line, err := e.state.Prompt(prompt)
	if errors.Is(err, liner.ErrPromptAborted) {
		return "", io.EOF
	}
	return line, err
}

// Remember adds a line to the history, and to its file, which only its owner can read.
func (e *LineEditor) Remember(line string) {
	line, _, _ = strings.Cut(line, "\n")
	e.state.AppendHistory(line)
	e.append(line)
}

func (e *LineEditor) append(line string) {
	if len(line) > maxHistoryLine || os.MkdirAll(filepath.Dir(e.history), 0o700) != nil {
		return
	}
	if f, err := os.OpenFile(e.history, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		_, _ = f.WriteString(line + "\n")
		_ = f.Close()
	}
}

// Close restores the terminal.
func (e *LineEditor) Close() error { return e.state.Close() }
