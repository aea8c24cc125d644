package term

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/peterh/liner"
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
	if f, err := os.Open(history); err == nil {
		_, _ = e.state.ReadHistory(f)
		_ = f.Close()
	}
	return e
}

// ReadLine returns the next line. Ctrl-C, and Ctrl-D on an empty line, return io.EOF.
func (e *LineEditor) ReadLine(prompt string) (string, error) {
	line, err := e.state.Prompt(prompt)
	if errors.Is(err, liner.ErrPromptAborted) {
		return "", io.EOF
	}
	if err == nil && line != "" {
		e.state.AppendHistory(line)
	}
	return line, err
}

// Close writes the history, readable only by its owner, and restores the terminal.
func (e *LineEditor) Close() error {
	_ = os.MkdirAll(filepath.Dir(e.history), 0o700)
	if f, err := os.OpenFile(e.history, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
		_, _ = e.state.WriteHistory(f)
		_ = f.Close()
	}
	return e.state.Close()
}
