package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"mneme/memory"
)

const version = 1

// Entry is one append: the encoded message, where it goes and where it comes from.
type Entry struct {
	Key     memory.Key
	Mark    memory.Mark
	Message []byte // belongs to the spool once added, and is not to be changed by anyone
}

// line is the JSON line that starts a record.
type line struct {
	Version int     `json:"v"`
	At      int64   `json:"at,omitempty"`
	Key     string  `json:"key,omitempty"`
	Run     string  `json:"run,omitempty"`
	Seq     int64   `json:"seq,omitempty"`
	Turn    int64   `json:"turn,omitempty"`
	Done    []int64 `json:"done,omitempty"`
}

func encodeEntry(at int64, e Entry) []byte {
	head := encodeLine(line{
		At: at, Key: e.Key.String(), Run: e.Mark.Run, Seq: e.Mark.Seq, Turn: e.Mark.Turn,
	})
	return append(append(head, '\n'), e.Message...)
}

func encodeDone(at []int64) []byte { return encodeLine(line{Done: at}) }

func encodeLine(l line) []byte {
	l.Version = version
	b, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("spool: a line of plain fields does not encode: %v", err))
	}
	return b
}

// decode reads a record: either done is not empty, or the entry was added at the time at. The message is a copy.
func decode(record []byte) (at int64, e Entry, done []int64, err error) {
	head, message, _ := bytes.Cut(record, []byte{'\n'})
	var l line
	if err := json.Unmarshal(head, &l); err != nil {
		return 0, Entry{}, nil, fmt.Errorf("read a spool record: %w", err)
	}
	if l.Version != version {
		return 0, Entry{}, nil, fmt.Errorf("a spool record of version %d; this program reads version %d", l.Version, version)
	}
	if len(l.Done) > 0 {
		return 0, Entry{}, l.Done, nil
	}
	key, ok := memory.ParseKey(l.Key)
	if !ok || l.At <= 0 {
		return 0, Entry{}, nil, errors.New("a spool record without a history's key or without a time")
	}
	mark := memory.Mark{Run: l.Run, Seq: l.Seq, Turn: l.Turn}
	return l.At, Entry{Key: key, Mark: mark, Message: bytes.Clone(message)}, nil, nil
}
