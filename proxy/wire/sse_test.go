package wire_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"mneme/proxy/wire"
)

func TestFrameReader(t *testing.T) {
	stream := ": hello\n\nevent: a\ndata: {\"x\":1}\n\ndata:{}\r\n\r\ndata: one\ndata: two\n\nid: 7\n\ndata: [DONE]"
	for name, r := range map[string]io.Reader{
		"at once": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
	} {
		t.Run(name, func(t *testing.T) {
			f := wire.NewFrameReader(r)
			var data, raw []string
			for {
				frame, err := f.Next()
				data, raw = append(data, string(frame.Data)), append(raw, string(frame.Raw))
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
			}
			require.Equal(t, []string{"", `{"x":1}`, "{}", "one\ntwo", "", "[DONE]"}, data)
			require.Equal(t, stream, strings.Join(raw, ""))
		})
	}
}

func TestAFrameWithOtherData(t *testing.T) {
	for raw, want := range map[string]string{
		"data:{\"a\":1}\n\n": "data:{\"b\":2}\n\n",
		": {\"a\":1}\r\nevent: e\r\ndata: {\"a\":1}\r\nid: 7\r\n\r\n": ": {\"a\":1}\r\nevent: e\r\ndata: {\"b\":2}\r\nid: 7\r\n\r\n",
		"data: {\nid: 7\ndata:  \"a\":1}\n\n":                         "data: {\"b\":2}\nid: 7\n\n",
		"data: {\"a\":1}":                                             "data: {\"b\":2}",
		": nothing\n\n":                                               ": nothing\n\n",
	} {
		frame := wire.Frame{Raw: []byte(raw)}
		require.Equal(t, want, string(frame.With(nil, []byte(`{"b":2}`))))
	}
	require.Equal(t, "data: {\ndata: }\n\n", string(wire.Frame{Raw: []byte("data: x\n\n")}.With(nil, []byte("{\n}"))))
}

func TestFrameReaderGivesNoHalfEventWhenTheConnectionBreaks(t *testing.T) {
	broken := errors.New("broken")
	f := wire.NewFrameReader(io.MultiReader(strings.NewReader("data: 1\n\ndata: 2"), iotest.ErrReader(broken)))
	frame, err := f.Next()
	require.NoError(t, err)
	require.Equal(t, "1", string(frame.Data))
	frame, err = f.Next()
	require.ErrorIs(t, err, broken)
	require.Empty(t, frame.Raw)
}

func TestFrameReaderBoundsAnEvent(t *testing.T) {
	f := wire.NewFrameReader(io.MultiReader(strings.NewReader("data: "), endless{}))
	_, err := f.Next()
	require.ErrorIs(t, err, wire.ErrFrameTooLong)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
