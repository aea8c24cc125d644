package access

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LeastSecret is the length of the shortest internal secret that is taken, in bytes.
const LeastSecret = 32

// ReadSecret reads the internal secret in a file. Errors say what to do.
func ReadSecret(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the internal secret cannot be read: %w", err)
	}
	secret := strings.TrimSpace(string(raw))
	if len(secret) < LeastSecret {
		return "", fmt.Errorf("%s: the internal secret is shorter than %d characters; remove the file, and the next start "+
			"makes another one", path, LeastSecret)
	}
	return secret, nil
}

// OpenSecret is ReadSecret that makes the file (0600) if it is not there, with a random secret. Of
// several processes that do so at once all get the same one.
func OpenSecret(path string) (string, error) {
	if secret, err := ReadSecret(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	temp, err := makeSecret(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("the internal secret cannot be written: %w; name a place for it in "+
			"auth.internal_secret_file, or set MNEME_INTERNAL_SECRET", err)
	}
	// Linked and not renamed: the first one stays.
	err = os.Link(temp, path)
	if removeErr := os.Remove(temp); err == nil || errors.Is(err, fs.ErrExist) {
		err = removeErr
	}
	if err != nil {
		return "", fmt.Errorf("the internal secret cannot be written: %w", err)
	}
	return ReadSecret(path)
}

// makeSecret writes a random secret into a new file in a folder.
func makeSecret(dir string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".secret-*") // with mode 0600
	if err != nil {
		return "", err
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(random) + "\n")
	return f.Name(), errors.Join(err, f.Sync(), f.Close())
}
