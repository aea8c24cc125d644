package term

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	maxHistory     = 1000 // lines that are kept
	maxHistoryLine = 4000 // bytes of a line that is kept
)

// StateFile is where a program of mneme keeps a file of this name for its user,
// by the XDG Base Directory Specification; "" where there is no home.
func StateFile(name string) string {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "mneme", name)
}

// lineHistory is a file of lines, oldest first.
type lineHistory struct{ path string }

// load reads the last lines, and shortens a file that has twice as many.
func (h *lineHistory) load() []string {
	f, err := os.Open(h.path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var lines []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if line := s.Text(); line != "" && utf8.ValidString(line) {
			lines = append(lines, Clean(line))
		}
	}
	if len(lines) <= maxHistory {
		return lines
	}
	long := len(lines) > 2*maxHistory
	lines = lines[len(lines)-maxHistory:]
	if tmp := h.path + ".tmp"; long && os.WriteFile(tmp, []byte(strings.Join(lines, "\n")+"\n"), 0o600) == nil {
		_ = os.Rename(tmp, h.path)
	}
	return lines
}

// add appends a line, for the next process: several may do so at a time.
func (h *lineHistory) add(line string) {
	if h.path == "" || len(line) > maxHistoryLine || os.MkdirAll(filepath.Dir(h.path), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}
