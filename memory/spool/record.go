package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"mneme/memory"
)

const version = 1

// Queue is the unit of ordering: the appends to one history, or those to the event logs of a chat's
// runs, which are drained in one order.
type Queue struct {
	Key    memory.Key // of logs, the chat's
	Events bool       // the appends are events of runs, for their logs
}

// History is the queue of a history.
func History(key memory.Key) Queue { return Queue{Key: key} }

// Events is the queue of the logs of a chat's runs.
func Events(chat memory.Chat) Queue { return Queue{Key: memory.ChatKey(chat), Events: true} }

// String is for logs and errors.
func (q Queue) String() string {
	if q.Events {
		return q.kind() + ":" + q.Key.Chat().String()
	}
	return q.Key.String()
}

// kind is what the appends go to; events come before history.
func (q Queue) kind() string {
	if q.Events {
		return string(memory.KindEvents)
	}
	return string(memory.KindHistory)
}

// Entry is one append that waits for Redis: its queue, its idempotency key and fencing token
// (Mark), and its bytes.
type Entry struct {
	Queue
	Mark memory.Mark
	// Bytes are the encoded message, or the event's line of JSON. They belong to the spool once added, and are not to be
	// changed by anyone.
	Bytes []byte
}

// line is the JSON line that starts a record; the package comment lists its forms.
type line struct {
	Version   int     `json:"v"`
	Timestamp int64   `json:"at,omitempty"`
	Key       string  `json:"key,omitempty"`
	Event     bool    `json:"event,omitempty"`
	Run       string  `json:"run,omitempty"`
	Seq       int64   `json:"seq,omitempty"`
	Turn      int64   `json:"turn,omitempty"`
	Done      []int64 `json:"done,omitempty"`
}

func encodeEntry(timestamp int64, e Entry) []byte {
	head := encodeLine(line{
		Timestamp: timestamp, Key: e.Key.String(), Event: e.Events, Run: e.Mark.Run, Seq: e.Mark.Seq, Turn: e.Mark.Turn,
	})
	return append(append(head, '\n'), e.Bytes...)
}

// encodeDone is the record that says that the entries added at these times were drained.
func encodeDone(timestamps []int64) []byte { return encodeLine(line{Done: timestamps}) }

func encodeLine(l line) []byte {
	l.Version = version
	b, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("spool: a line of plain fields does not encode: %v", err))
	}
	return b
}

// decode reads a record: either done is not empty, or the entry was added at the time at. Its bytes are a copy.
func decode(record []byte) (timestamp int64, e Entry, done []int64, err error) {
	head, payload, _ := bytes.Cut(record, []byte{'\n'})
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
	if !ok || l.Timestamp <= 0 {
		return 0, Entry{}, nil, errors.New("a spool record without a history's key or without a time")
	}
	mark := memory.Mark{Run: l.Run, Seq: l.Seq, Turn: l.Turn}
	return l.Timestamp, Entry{Queue{key, l.Event}, mark, bytes.Clone(payload)}, nil, nil
}
