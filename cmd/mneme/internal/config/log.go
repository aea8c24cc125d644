package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// OpenLog opens the file of log.file to be appended to, and makes it if it is not there; nil for none.
func OpenLog(c Config) (*os.File, error) { return openLog(c, os.O_CREATE) }

// CheckLog says whether OpenLog would fail, and makes no file: the user that checks may be another than the one that
// runs the services, and a file of that user's would be closed to them.
func CheckLog(c Config) error {
	f, err := openLog(c, 0)
	if f != nil {
		f.Close()
	}
	return err
}

func openLog(c Config, create int) (*os.File, error) {
	path := c.Log.File
	if path == "" {
		return nil, nil
	}
	if folder, err := os.Stat(filepath.Dir(path)); err != nil || !folder.IsDir() {
		return nil, c.origin.locate(bad("log.file", "there is no folder %s; make it, writable for who runs the services",
			filepath.Dir(path)))
	}
	// To open a pipe would wait for its reader.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, c.origin.locate(bad("log.file", "%s is there and is no file; name another one", path))
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|create, 0o600)
	switch {
	case create == 0 && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, c.origin.locate(bad("log.file", "it cannot be written (%v); name a file that who runs the services may "+
			"append to", err))
	}
	return f, nil
}
