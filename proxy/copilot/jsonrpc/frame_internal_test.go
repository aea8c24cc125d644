package jsonrpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sourcegraph/jsonrpc2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
)

func TestHeadersThatEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   error
	}{
		"garbage":              {"hello\r\n\r\n", ErrProtocol},
		"a length of letters":  {"Content-Length: abc\r\n\r\n{}", ErrProtocol},
		"zero":                 {"Content-Length: 0\r\n\r\n", ErrProtocol},
		"negative":             {"Content-Length: -2\r\n\r\n{}", ErrProtocol},
		"a sign":               {"Content-Length: +2\r\n\r\n{}", ErrProtocol},
		"no digits":            {"Content-Length:\r\n\r\n{}", ErrProtocol},
		"twice":                {"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", ErrProtocol},
		"missing":              {"Content-Type: x\r\n\r\n{}", ErrProtocol},
		"no header at all":     {"\r\n{}", ErrProtocol},
		"lines that end in LF": {"Content-Length: 2\n\n{}", ErrProtocol},
		"a header without end": {"X: " + strings.Repeat("x", maxHeaderBytes+1), ErrProtocol},
		"too many headers": {strings.Repeat("X: y\r\n", maxHeaderLines+1) + "Content-Length: 2\r\n\r\n{}",
			ErrProtocol},
		"a gigantic length":         {"Content-Length: 2147483648\r\n\r\n", ErrFrameTooLarge},
		"a length beyond integers":  {"Content-Length: 99999999999999999999999\r\n\r\n", ErrFrameTooLarge},
		"one byte above the bound":  {"Content-Length: 1025\r\n\r\n" + strings.Repeat("x", 1025), ErrFrameTooLarge},
		"an end in the header":      {"Content-Le", io.ErrUnexpectedEOF},
		"an end before the body":    {"Content-Length: 2\r\n\r\n", io.ErrUnexpectedEOF},
		"an end in the body":        {"Content-Length: 3\r\n\r\n{}", io.ErrUnexpectedEOF},
		"an end between the lines":  {"Content-Length: 3\r\n", io.ErrUnexpectedEOF},
		"an end between two frames": {"", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newFrames(strings.NewReader(c.stream), 1024).next()
			require.ErrorIs(t, err, c.want)
		})
	}
}

func TestHeadersThatAreFine(t *testing.T) {
	for name, stream := range map[string]string{
		"plain":             "Content-Length: 2\r\n\r\n{}",
		"lower case":        "content-length: 2\r\n\r\n{}",
		"no space":          "Content-Length:2\r\n\r\n{}",
		"a type before":     "Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}",
		"a type behind":     "Content-Length: 2\r\nContent-Type: application/vscode-jsonrpc\r\n\r\n{}",
		"leading zeros":     "Content-Length: 002\r\n\r\n{}",
		"as many as may be": strings.Repeat("X: y\r\n", maxHeaderLines-1) + "Content-Length: 2\r\n\r\n{}",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFrames(strings.NewReader(stream), 1024)
			body, err := f.next()
			require.NoError(t, err)
			require.Equal(t, "{}", string(body))
			_, err = f.next()
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

// A length that promises gigabytes costs nothing.
func TestAGiganticLengthAllocatesNothing(t *testing.T) {
	testtier.Slow(t)
	stream := []byte("Content-Length: 2147483647\r\n\r\n")
	bytesPerRun := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := newFrames(bytes.NewReader(stream), 32<<20).next()
			if !errors.Is(err, ErrFrameTooLarge) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	require.Less(t, bytesPerRun, int64(256<<10))
}

// However the stream is cut, also inside a header or a rune, the frames come out
// whole. The bytes are made by another implementation.
func TestFramesArriveInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOf(rapid.String()).Draw(t, "texts")
		var stream bytes.Buffer
		for _, text := range texts {
			require.NoError(t, jsonrpc2.VSCodeObjectCodec{}.WriteObject(&stream, text))
		}
		var in io.Reader = &stream
		if rapid.Bool().Draw(t, "byte by byte") {
			in = iotest.OneByteReader(in)
		} else {
			in = iotest.HalfReader(in)
		}
		f := newFrames(in, 1<<20)
		for _, text := range texts {
			body, err := f.next()
			require.NoError(t, err)
			var got string
			require.NoError(t, json.Unmarshal(body, &got))
			require.Equal(t, strings.ToValidUTF8(text, "\ufffd"), got)
		}
		_, err := f.next()
		require.ErrorIs(t, err, io.EOF)
	})
}

// What we write another implementation reads.
func TestOurFramesAreReadByOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		body, err := json.Marshal(text)
		require.NoError(t, err)
		var got string
		require.NoError(t, jsonrpc2.VSCodeObjectCodec{}.ReadObject(bufio.NewReader(bytes.NewReader(frame(body))), &got))
		require.Equal(t, strings.ToValidUTF8(text, "\ufffd"), got)
	})
}

func FuzzFrames(f *testing.F) {
	for _, seed := range []string{
		"Content-Length: 2\r\n\r\n{}", "content-length:2\r\nContent-Type: x\r\n\r\n{}Content-Length: 4\r\n\r\nnull",
		"Content-Length: 2\n\n{}", "Content-Length: -1\r\n\r\n", "Content-Length: 99999999999999999999\r\n\r\n", "\r\n\r\n",
		"Content-Length",
		"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", strings.Repeat("a:b\r\n", 20),
		"Content-Length: 3\r\n\r\n\xff\xfe\xfd",
		`Content-Length: 38` + "\r\n\r\n" + `{"jsonrpc":"2.0","id":null,"error":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		const most = 4 << 10
		whole, pieces := newFrames(bytes.NewReader(stream), most), newFrames(iotest.OneByteReader(bytes.NewReader(stream)),
			most)
		read := 0
		for {
			body, err := whole.next()
			again, errAgain := pieces.next()
			require.Equal(t, body, again, "the pieces in which a stream arrives change nothing")
			require.Equal(t, err == nil, errAgain == nil)
			if err != nil {
				require.True(t, errors.Is(err, ErrProtocol) || errors.Is(err, ErrFrameTooLarge) || errors.Is(err, io.EOF) ||
					errors.Is(err, io.ErrUnexpectedEOF), err)
				return
			}
			require.LessOrEqual(t, len(body), most)
			require.NotEmpty(t, body)
			read += len(body)
			require.LessOrEqual(t, read, len(stream))
			_, _ = parse(body)
		}
	})
}
