package backup

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"mneme/memory/cold"
)

// version is the format that this program writes, and the newest that it reads.
const version = 1

// maxLine bounds one line of a file, in bytes: the largest value that any store
// holds (128 MiB), escaped.
const maxLine = 1 << 30

// header is a file's first line.
type header struct {
	Version int       `json:"mneme_backup"`
	Created time.Time `json:"created"`
}

// record is one key, or a part of one.
type record struct {
	Key       string   `json:"key"`
	Type      kind     `json:"type"`
	Continued bool     `json:"more,omitempty"`    // adds to the record of this key before
	Value     text     `json:"value,omitempty"`   // of a string
	Rows      [][]text `json:"rows,omitempty"`    // of the other types
	Expires   int64    `json:"expires,omitempty"` // Unix ms, 0 for never
}

// kind is the type of a key, as Redis's TYPE names it.
type kind string

const (
	isString kind = "string"
	isHash   kind = "hash"
	isSet    kind = "set"
	isZSet   kind = "zset"
	isStream kind = "stream"
	isNone   kind = "none"
)

// rowLengths say how many texts a row has at least.
var rowLengths = map[kind]int{isHash: 2, isSet: 1, isZSet: 2, isStream: 1}

// check says whether a record can be restored.
func (r record) check() error {
	least, rows := rowLengths[r.Type]
	if r.Key == "" || !rows && r.Type != isString && r.Type != isNone || !rows && len(r.Rows) > 0 {
		return fmt.Errorf("a record of key %.100q and type %.20q", r.Key, r.Type)
	}
	for _, row := range r.Rows {
		if len(row) < least || r.Type != isStream && len(row) != least || r.Type == isStream && len(row)%2 == 0 {
			return fmt.Errorf("key %.100q has a row of %d texts", r.Key, len(row))
		}
	}
	return nil
}

type text = cold.Text

// ending is a file's last line.
type ending struct {
	End     bool   `json:"end"`
	Records int64  `json:"records"`
	SHA256  string `json:"sha256"`
}

// writer writes a file; nothing is complete before close.
type writer struct {
	zip     *gzip.Writer
	sum     hash.Hash
	encoder *json.Encoder // into both of them
	records int64
}

func newWriter(out io.Writer, created time.Time) (*writer, error) {
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := &writer{zip: zip, sum: sha256.New()}
	w.encoder = json.NewEncoder(io.MultiWriter(zip, w.sum))
	w.encoder.SetEscapeHTML(false)
	return w, w.encoder.Encode(header{version, created.UTC().Truncate(time.Second)})
}

func (w *writer) write(r record) error {
	w.records++
	return w.encoder.Encode(r)
}

func (w *writer) close() error {
	end := ending{true, w.records, hex.EncodeToString(w.sum.Sum(nil))}
	if err := json.NewEncoder(w.zip).Encode(end); err != nil {
		return err
	}
	return w.zip.Close()
}

// Reasons why a file is refused; all of them before anything is written.
var (
	errForeign = errors.New("this is no backup that mneme wrote")
	errDamaged = errors.New("the backup is damaged or cut short; nothing was restored from it")
)

// read gives every record of a file to take, and an error unless the file is
// whole, in which case it says when the backup was made. Errors of take come
// through as they are.
func read(in io.Reader, take func(record) error) (created time.Time, err error) {
	zip, err := gzip.NewReader(in)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w (%w)", errForeign, err)
	}
	lines := bufio.NewScanner(zip)
	lines.Buffer(make([]byte, 0, 1<<20), maxLine)
	var first header
	if !lines.Scan() {
		return time.Time{}, damaged(lines.Err())
	}
	switch err := json.Unmarshal(lines.Bytes(), &first); {
	case err != nil || first.Version < 1:
		return time.Time{}, errForeign
	case first.Version > version:
		return time.Time{},
			fmt.Errorf("the backup has format %d, which a newer mneme wrote; this one reads up to %d: restore it with the "+
				"newer one", first.Version, version)
	}
	sum, records := sha256.New(), int64(0)
	hashLine(sum, lines.Bytes())
	for lines.Scan() {
		var line struct {
			record
			ending
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return first.Created, damaged(err)
		}
		if line.End {
			if line.Records != records || line.SHA256 != hex.EncodeToString(sum.Sum(nil)) || lines.Scan() || lines.Err() != nil {
				return first.Created, damaged(lines.Err())
			}
			return first.Created, nil
		}
		if err := line.record.check(); err != nil {
			return first.Created, damaged(err)
		}
		hashLine(sum, lines.Bytes())
		records++
		if err := take(line.record); err != nil {
			return first.Created, err
		}
	}
	return first.Created, damaged(lines.Err())
}

func hashLine(sum hash.Hash, line []byte) {
	sum.Write(line)
	sum.Write([]byte{'\n'})
}

func damaged(cause error) error {
	if cause == nil {
		return errDamaged
	}
	return fmt.Errorf("%w (%w)", errDamaged, cause)
}
