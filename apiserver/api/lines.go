package api

// Lines are the events after a number that the log holds now, each as its line of
// JSON; it does not wait for more. None if they were dropped. Callers must not
// change the bytes.
func (l *Log) Lines(after int64) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped || after < 0 || after >= l.last {
		return nil
	}
	lines := make([][]byte, 0, l.last-after)
	for _, en := range l.entries[after:] {
		lines = append(lines, en.line)
	}
	return lines
}
