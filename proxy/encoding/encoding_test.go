package encoding_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"mneme/proxy/encoding"
)

var compressors = map[string]func(io.Writer) io.WriteCloser{
	"gzip":        func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"X-GZIP":      func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate":     func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"deflate raw": func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 5); return z },
	"br":          func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"zstd":        func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
}

func TestBodiesAreDecoded(t *testing.T) {
	t.Parallel()
	text := strings.Repeat(`{"model":"m"}`, 10_000)
	for name, compress := range compressors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coding, _, _ := strings.Cut(name, " ")
			packed := pack(t, compress, text)
			got, err := decode(coding, packed)
			require.NoError(t, err)
			require.Equal(t, text, got)

			_, err = decode(coding, packed[:len(packed)/2])
			require.Error(t, err, "a cut body")
			_, err = decode(coding, append([]byte("<html>"), packed...))
			require.Error(t, err, "a body in another coding")

			got, err = decode("gzip, "+coding, pack(t, compress, string(pack(t, compressors["gzip"], text))))
			require.NoError(t, err)
			require.Equal(t, text, got, "two codings")
		})
	}
}

func TestUnknownCodingsAreRefused(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"compress", "gzip, dcb", "gzip, gzip, gzip, gzip, gzip"} {
		_, err := encoding.NewReader(coding, io.NopCloser(strings.NewReader("")))
		require.ErrorIs(t, err, encoding.ErrUnknown, coding)
	}
	require.True(t, encoding.Identity(" Identity"))
	require.False(t, encoding.Identity("br"))
}

func pack(t *testing.T, compress func(io.Writer) io.WriteCloser, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := compress(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func decode(coding string, packed []byte) (string, error) {
	r, err := encoding.NewReader(coding, io.NopCloser(bytes.NewReader(packed)))
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}
