package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// recordVersion is the first byte of every record.
const recordVersion = 1

var errRecord = errors.New("the record cannot be read; it was written by a newer version, or by another program")

// record is the content of one journal record: the commands that took effect together, and when.
type record struct {
	timestamp time.Time // whole milliseconds
	// expired says that keys expired since the record before. A replay has to expire them before it
	// runs the commands, or these would meet keys that were gone.
	expired  bool
	commands [][]string
}

// appendRecord encodes r: version, flags, milliseconds (int64 LE), number of commands, and for each
// the number of its arguments and the arguments. Every count is an unsigned varint, and every
// argument has its length before it.
func appendRecord(dst []byte, r record) []byte {
	var flags byte
	if r.expired {
		flags = 1
	}
	dst = append(dst, recordVersion, flags)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.timestamp.UnixMilli()))
	dst = binary.AppendUvarint(dst, uint64(len(r.commands)))
	for _, args := range r.commands {
		dst = binary.AppendUvarint(dst, uint64(len(args)))
		for _, arg := range args {
			dst = binary.AppendUvarint(dst, uint64(len(arg)))
			dst = append(dst, arg...)
		}
	}
	return dst
}

func parseRecord(b []byte) (record, error) {
	if len(b) < 10 || b[0] != recordVersion {
		return record{}, errRecord
	}
	r := record{
		expired:   b[1]&1 != 0,
		timestamp: time.UnixMilli(int64(binary.LittleEndian.Uint64(b[2:]))),
	}
	d := decoder{rest: b[10:]}
	for n := d.count(); n > 0; n-- {
		args := make([]string, 0, d.count())
		for range cap(args) {
			args = append(args, d.str())
		}
		if len(args) == 0 {
			d.bad = true
		}
		if d.bad {
			break
		}
		r.commands = append(r.commands, args)
	}
	if d.bad || len(d.rest) > 0 {
		return record{}, fmt.Errorf("%w (version %d)", errRecord, b[0])
	}
	return r, nil
}

// decoder reads varints and strings. It accepts no count above the number of bytes that are left,
// so that a corrupt one cannot make it allocate much memory.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) count() int {
	n, size := binary.Uvarint(d.rest)
	if d.bad || size <= 0 || n > uint64(len(d.rest)-size) {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

func (d *decoder) str() string {
	n := d.count()
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}
