package access

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/rs/zerolog"

	"mneme/memory"
)

// looked is how often the file is looked at.
const checkInterval = 2 * time.Second

// maxFile bounds the file, in bytes.
const maxFile = 4 << 20

// File are keys in a file of the operator's: YAML, a list under keys, of which each has id, name,
// tenant, scopes and hash, the SHA-256 of the key's whole text in hex. It is read again when it has
// changed; a version that is wrong is logged, and the keys stay as they were.
type File struct {
	path string
	log  zerolog.Logger

	mu    sync.Mutex // guards what follows
	keys  map[string]Key
	state string    // modification time and size
	next  time.Time // when it is looked at
}

// OpenFile reads a file of keys. Errors name the line.
func OpenFile(path string, log zerolog.Logger) (*File, error) {
	f := &File{path: path, log: log}
	return f, f.read()
}

var hexHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// fileKey is a key as it stands in the file.
type fileKey struct {
	Key  `yaml:",inline"`
	Hash string `yaml:"hash"`
}

// read takes the file if it has changed.
func (f *File) read() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("the file of keys cannot be read: %w", err)
	}
	state := fmt.Sprint(info.ModTime().UnixNano(), info.Size())
	if state == f.state {
		return nil
	}
	if info.Size() > maxFile {
		return fmt.Errorf("%s: the file of keys is larger than %d bytes", f.path, maxFile)
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("the file of keys cannot be read: %w", err)
	}
	keys, err := f.parse(raw)
	if err != nil {
		return err
	}
	f.keys, f.state = keys, state
	return nil
}

func (f *File) parse(raw []byte) (map[string]Key, error) {
	var read struct {
		Keys []fileKey `yaml:"keys"`
	}
	if err := yaml.UnmarshalWithOptions(raw, &read, yaml.Strict()); err != nil {
		line := 0
		if yamlErr, ok := errors.AsType[yaml.Error](err); ok && yamlErr.GetToken() != nil {
			line = yamlErr.GetToken().Position.Line
			err = errors.New(strings.SplitN(yamlErr.GetMessage(), "\n", 2)[0])
		}
		return nil, fmt.Errorf("%s:%d: %w", f.path, line, err)
	}
	lines := entryLines(string(raw))
	keys := map[string]Key{}
	for i, k := range read.Keys {
		bad := func(format string, args ...any) error {
			line := 0
			if i < len(lines) {
				line = lines[i]
			}
			return fmt.Errorf("%s:%d: %s", f.path, line, fmt.Sprintf(format, args...))
		}
		if k.Name == "" {
			k.Name = k.ID
		}
		switch err := k.check(); {
		case !keyID.MatchString(k.ID):
			return nil, bad("a key's id is 1 to 32 characters of a-z 0-9 -, not %.40q", k.ID)
		case keys[k.ID].ID != "":
			return nil, bad("there is a key %s already; every id stands once", k.ID)
		case !hexHash.MatchString(k.Hash): // not repeated: it may be the key itself
			return nil, bad("hash is the SHA-256 of the whole key, 64 characters of 0-9 a-f")
		case err != nil:
			return nil, bad("%s", strings.TrimPrefix(err.Error(), ErrBadKey.Error()+": "))
		}
		k.Key.hash = k.Hash
		keys[k.ID] = k.Key
	}
	return keys, nil
}

// find finds a key by its id.
func (f *File) find(id string) (Key, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	k, ok := f.keys[id]
	return k, ok
}

// tenants are the ids of all keys, in their order, by the tenant.
func (f *File) tenants() map[memory.Tenant][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look()
	ids := map[memory.Tenant][]string{}
	for _, id := range slices.Sorted(maps.Keys(f.keys)) {
		tenant := f.keys[id].Tenant
		ids[tenant] = append(ids[tenant], id)
	}
	return ids
}

// look reads the file once more if it has changed, now and then. The lock is held.
func (f *File) look() {
	if now := time.Now(); !now.Before(f.next) {
		f.next = now.Add(checkInterval)
		if err := f.read(); err != nil {
			f.log.Error().Err(err).Msg("the file of keys has changed and is wrong; the keys stay as they were")
		}
	}
}

// entryLines are the numbers of the lines at which the entries of the first list begin.
func entryLines(text string) (lines []int) {
	indent, n := "", 0
	for line := range strings.Lines(text) {
		n++
		rest := strings.TrimLeft(line, " ")
		spaces := line[:len(line)-len(rest)]
		if !strings.HasPrefix(rest, "- ") || len(lines) > 0 && spaces != indent {
			continue
		}
		indent, lines = spaces, append(lines, n)
	}
	return lines
}
