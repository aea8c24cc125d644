// Package encoding decodes compressed HTTP bodies: gzip, deflate, br and zstd (RFC 9110, section 8.4.1).
//
// It owns no limits. Callers bound the decoded bytes.
package encoding

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// ErrUnknown indicates a content coding without a decoder.
var ErrUnknown = errors.New("unknown content encoding")

// maxWindow bounds the memory of a zstd decoder, in bytes. RFC 9659 allows no larger window for HTTP.
const maxWindow = 8 << 20

// maxCodings bounds the codings of one body.
const maxCodings = 4

// Identity reports whether a Content-Encoding names no coding.
func Identity(header string) bool {
	return header == "" || strings.EqualFold(strings.TrimSpace(header), "identity")
}

// NewReader returns the decoded body of a message with this Content-Encoding. Reading it fails if the body is damaged.
// Closing the reader closes body. NewReader reads nothing. Unknown codings fail with ErrUnknown.
func NewReader(header string, body io.ReadCloser) (io.ReadCloser, error) {
	codings := strings.Split(header, ",")
	if len(codings) > maxCodings {
		return nil, fmt.Errorf("%w: more than %d codings", ErrUnknown, maxCodings)
	}
	d := &decoder{closers: []func() error{body.Close}}
	var r io.Reader = body
	for i := len(codings) - 1; i >= 0; i-- { // the last coding was applied last
		name := strings.ToLower(strings.TrimSpace(codings[i]))
		if Identity(name) {
			continue
		}
		open := openers[name]
		if open == nil {
			return nil, fmt.Errorf("%w %q", ErrUnknown, name)
		}
		r = &lazy{src: r, open: open, d: d}
	}
	d.Reader = r
	return d, nil
}

// decoder closes the readers of its codings and the body.
type decoder struct {
	io.Reader
	closers []func() error
}

func (d *decoder) Close() error {
	var err error
	for i := len(d.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, d.closers[i]())
	}
	return err
}

// lazy opens a coding at the first Read, because some decoders read a header when they are opened.
type lazy struct {
	src  io.Reader
	open func(io.Reader) (io.Reader, error)
	d    *decoder
	r    io.Reader
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.r == nil {
		r, err := l.open(l.src)
		if err != nil {
			return 0, err
		}
		l.r = r
		switch c := r.(type) {
		case *zstd.Decoder:
			l.d.closers = append(l.d.closers, func() error { c.Close(); return nil })
		case io.Closer:
			l.d.closers = append(l.d.closers, c.Close)
		}
	}
	return l.r.Read(p)
}

var openers = map[string]func(io.Reader) (io.Reader, error){
	"gzip":    func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip":  func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"deflate": openDeflate,
	"br":      func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
	"zstd": func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	},
}

// openDeflate opens the zlib format of RFC 9110, and the raw format that some servers send instead.
func openDeflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}
