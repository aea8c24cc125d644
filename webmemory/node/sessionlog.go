package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory"
)

// sessionLogBytes is the maximum size of a chat's log. The previous log is kept with the suffix .1.
const sessionLogBytes = 1 << 20

// SessionLogs writes one readable log per chat: received, loaded and stored messages. Operators use it to inspect a
// conversation. Lost lines do no harm, so a failed write is only logged.
type SessionLogs struct {
	Dir string         // "" writes nothing
	Log zerolog.Logger // logger for repeated messages

	mu sync.Mutex // serializes the writes of all chats
}

// path returns the log file of a chat.
func (l *SessionLogs) path(chat memory.Chat) string {
	return filepath.Join(l.Dir, "memory_"+escaped(chat)+".log")
}

// escaped returns a chat as a part of a file name. Characters that a file system may reject are escaped.
func escaped(chat memory.Chat) string {
	var b strings.Builder
	for _, c := range []byte(chat.String()) {
		if strings.IndexByte("_-.", c) >= 0 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// SessionLine returns a session log line with the current time.
func SessionLine(format string, args ...any) string {
	return time.Now().Format("2006-01-02 15:04:05.000 ") + oneLine(fmt.Sprintf(format, args...)) + "\n"
}

// Write appends lines of SessionLine to a chat's log.
func (l *SessionLogs) Write(chat memory.Chat, lines ...string) {
	if l.Dir == "" || len(lines) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.append(l.path(chat), strings.Join(lines, "")); err != nil {
		l.Log.Warn().Err(err).Msg("session logs cannot be written; set session_logs: false or make the folder writable")
	}
}

func (l *SessionLogs) append(path, text string) error {
	if info, err := os.Stat(path); err == nil && info.Size()+int64(len(text)) > sessionLogBytes {
		if err := os.Rename(path, path+".1"); err != nil {
			return err
		}
	} else if err != nil {
		if err := os.MkdirAll(l.Dir, 0o700); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

// Remove deletes a chat's logs.
func (l *SessionLogs) Remove(chat memory.Chat) error {
	if l.Dir == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, path := range []string{l.path(chat), l.path(chat) + ".1"} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// oneLine limits a text to one line of about 2000 bytes, so that it cannot look like several entries or fill the log.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > 2000 {
		s = strings.ToValidUTF8(s[:2000], "") + "…"
	}
	return s
}
