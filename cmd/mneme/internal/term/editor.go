package term

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/peterh/liner"
)

// ErrInterrupt is what ReadLine gives for Ctrl-C.
var ErrInterrupt = errors.New("interrupted")

// Bracketed paste: the terminal says where a pasted text begins and ends, so that
// the line feeds in it are not taken for the key that ends a line.
const (
	pasteOn  = "\x1b[?2004h"
	pasteOff = "\x1b[?2004l"
)

// Editor reads lines from a person at the terminal of this process: with editing,
// a history that outlives the process, and pasted texts of several lines as one.
// Only one may be open.
type Editor struct {
	state   *liner.State
	history *lineHistory
	pastes  *pastes
}

// OpenEditor takes the terminal over until Close. historyFile keeps the lines, for
// their owner only; "" keeps none. Tab completes the given words at the start of a
// line. What cannot be read or written of the history is left out silently: it is
// a convenience.
//
// A goroutine reads the terminal from then on, for as long as the process lives:
// nothing ends a read of a terminal.
func OpenEditor(historyFile string, words []string) (*Editor, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	e := &Editor{history: &lineHistory{path: historyFile}, pastes: &pastes{}}
	// The library sets the terminal's mode by its file descriptor, and reads keys from what os.Stdin is now.
	terminal := os.Stdin
	os.Stdin = from
	e.state = liner.NewLiner()
	os.Stdin = terminal
	go e.pastes.filter(to, terminal)
	e.state.SetCtrlCAborts(true)
	e.state.SetMultiLineMode(true)
	e.state.SetBeep(false)
	e.state.SetCompleter(func(line string) (fits []string) {
		for _, w := range words {
			if line != "" && strings.HasPrefix(w, line) {
				fits = append(fits, w)
			}
		}
		return fits
	})
	for _, line := range e.history.load() {
		e.state.AppendHistory(line)
	}
	return e, nil
}

// ReadLine shows a prompt without control characters and waits for a line. A
// pasted text keeps its line feeds. Ctrl-C is ErrInterrupt, Ctrl-D on an empty
// line io.EOF.
func (e *Editor) ReadLine(prompt string) (string, error) {
	fmt.Print(pasteOn)
	line, err := e.state.Prompt(prompt)
	fmt.Print(pasteOff)
	switch {
	case errors.Is(err, liner.ErrPromptAborted):
		return "", ErrInterrupt
	case err != nil:
		return "", err
	}
	return e.pastes.expand(line), nil
}

// Remember puts a line that ReadLine gave into the history.
func (e *Editor) Remember(line string) {
	shown := e.pastes.collapse(line)
	e.state.AppendHistory(shown)
	e.history.add(shown)
}

// Close gives the terminal back as it was.
func (e *Editor) Close() error {
	_, err := io.WriteString(os.Stdout, pasteOff)
	return errors.Join(err, e.state.Close())
}
