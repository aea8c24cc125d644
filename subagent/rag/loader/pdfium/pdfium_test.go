package pdfium_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/subagent/rag/loader/pdfium"
)

// cache returns the folder for machine code that mneme itself uses, because compiling takes seconds.
func cache(t *testing.T) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return t.TempDir()
	}
	dir = filepath.Join(dir, "mneme", "pdfium")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	return dir
}

// A PDF that opens without a password is read, whatever its owner may have forbidden.
func TestEncryptedPDF(t *testing.T) {
	engine := pdfium.New(cache(t))
	defer engine.Close()
	read := func(name string) (string, error) {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		d, err := engine.Document(t.Context())
		require.NoError(t, err)
		defer d.Close()
		if err := d.Open(data); err != nil {
			return "", err
		}
		page, err := d.Page(1)
		return page.Text, err
	}
	for _, name := range []string{"no-password-rc4.pdf", "no-password-aes256.pdf"} {
		text, err := read(name)
		require.NoError(t, err)
		require.Equal(t, "The ferry leaves at noon.", text)
	}
	_, err := read("password-aes256.pdf")
	require.ErrorIs(t, err, pdfium.ErrPassword)
}
