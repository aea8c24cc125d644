package recall

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"mneme/memory"
	"mneme/memory/textindex"
)

// Index is the messages of one history, to be searched. Safe for concurrent use: a search
// that begins after a change has returned sees all of it. Make one with New.
type Index struct {
	key     memory.Key
	words   *textindex.Collection // a document for each position, with passages of the text
	vectors *textindex.Collection // the same, of what is placed

	writer  sync.Mutex         // held by changes, so that they take turns
	authors map[author]*author // guarded by writer

	mu        sync.RWMutex
	front     []*entry        // before the first message that was appended, the latest first; guarded by mu
	tail      []*entry        // from it on; guarded by mu
	positions map[string]int  // positions by id; guarded by mu
	size      int             // of the entries, in bytes; guarded by mu
	names     map[string]bool // of speakers; guarded by mu
	complete  bool            // guarded by mu
}

// entry is a message as it is searched and shown. It never changes. Its position counts
// from the first that was appended, those in front of it from -1 down.
type entry struct {
	id string
	*author
	ts   float64
	text string // empty without content
	*extra
}

// author says whose words messages are, which share it.
type author struct {
	role, name string
	origin     memory.Origin
}

// extra has the fields that few messages need.
type extra struct {
	pasted   []memory.Span // see memory.Message
	passages []int32       // where the passages after the first begin in the text
}

var noExtra = &extra{}

// New makes an Index without messages.
func New(key memory.Key) *Index {
	return &Index{
		key: key, words: textindex.NewUnjudged(), vectors: textindex.NewUnjudged(), positions: map[string]int{},
		names: map[string]bool{}, authors: map[author]*author{},
	}
}

// Key is the history that the index is of.
func (ix *Index) Key() memory.Key { return ix.key }

// Len is how many messages the index holds.
func (ix *Index) Len() int {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return len(ix.positions)
}

// Size is about how many bytes the index takes. A caller that bounds it stops to put
// messages in front; what is searched then is the newest, and results are partial.
func (ix *Index) Size() int {
	ix.mu.RLock()
	size := ix.size
	ix.mu.RUnlock()
	return size + ix.words.Snapshot().Size() + ix.vectors.Snapshot().Size()
}

// MarkComplete says that nothing is left to be put in front: results are not partial from then on.
func (ix *Index) MarkComplete() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.complete = true
}

func (ix *Index) isComplete() bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.complete
}

// Append adds stored messages behind all others, the oldest first. Their ids are those of
// memory.IDs; one that is known is passed over, so that a message which stands in an
// archive and in a history counts once. A message that cannot be read is never found.
func (ix *Index) Append(raw ...json.RawMessage) {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	fresh := ix.fresh(raw)
	ix.mu.Lock()
	first := len(ix.tail)
	ix.tail = append(ix.tail, fresh...)
	ix.mu.Unlock()
	ix.put(fresh, func(i int) int { return first + i })
}

// Prepend is Append in front of all others; the oldest first, too.
func (ix *Index) Prepend(raw ...json.RawMessage) {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	fresh := ix.fresh(raw)
	slices.Reverse(fresh)
	ix.mu.Lock()
	first := -1 - len(ix.front)
	ix.front = append(ix.front, fresh...)
	ix.mu.Unlock()
	ix.put(fresh, func(i int) int { return first - i })
}

// entry is the one at a position, nil if there is none. Callers hold mu.
func (ix *Index) entry(position int) *entry {
	switch {
	case position >= 0 && position < len(ix.tail):
		return ix.tail[position]
	case position < 0 && -1-position < len(ix.front):
		return ix.front[-1-position]
	}
	return nil
}

// put makes entries known, which have their places, and lets their words be found. Nothing
// is found that has no place, so that this comes last.
func (ix *Index) put(entries []*entry, position func(i int) int) {
	if len(entries) == 0 {
		return
	}
	ix.mu.Lock()
	for i, e := range entries {
		ix.positions[e.id] = position(i)
		ix.size += e.size()
		if e.name != "" && (e.role == memory.RoleUser || e.role == memory.RoleAssistant) {
			ix.names[e.name] = true
		}
	}
	ix.mu.Unlock()
	var documents []textindex.Document
	for i, e := range entries {
		if e.text != "" {
			documents = append(documents, textindex.Document{ID: strconv.Itoa(position(i)), Passages: e.indexed()})
		}
	}
	ix.words.Apply(textindex.Change{Put: documents})
}

// fresh are the messages that are not known yet.
func (ix *Index) fresh(raw []json.RawMessage) []*entry {
	ids := memory.IDs(raw)
	indexed := make([]bool, len(raw))
	ix.mu.RLock()
	for i, id := range ids {
		_, indexed[i] = ix.positions[id]
	}
	ix.mu.RUnlock()
	entries := make([]*entry, 0, len(raw))
	for i, id := range ids {
		if !indexed[i] {
			e := newEntry(id, raw[i])
			if ix.authors[*e.author] == nil {
				ix.authors[*e.author] = e.author
			}
			e.author = ix.authors[*e.author]
			entries = append(entries, e)
		}
	}
	return entries
}

// Text is what a message says, for the caller that places it.
type Text struct{ ID, Text string }

// Unplaced are those of the newest messages that Place was not told of yet, at most limit.
func (ix *Index) Unplaced(newest, limit int) []Text {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	var list []Text
	oldest := max(len(ix.tail)-newest, -len(ix.front))
	for position := len(ix.tail) - 1; position >= oldest && len(list) < limit; position-- {
		if e := ix.entry(position); e.text != "" && !ix.vectors.Has(strconv.Itoa(position)) {
			list = append(list, Text{e.id, e.text})
		}
	}
	return list
}

// maxPlaced bounds what of a text an embedding model is shown, in bytes.
const maxPlaced = 4 << 10

// Placed is the part of a message or of a query that an embedding model is shown.
func Placed(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxPlaced)], "") }

// Place says where an embedding model places messages, by their ids; nowhere, if the vector is
// nil. All vectors of an index, and those of its queries, are of one model.
func (ix *Index) Place(vectors map[string][]float32) {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	var documents []textindex.Document
	ix.mu.RLock()
	for id, vector := range vectors {
		if position, ok := ix.positions[id]; ok {
			document := strconv.Itoa(position)
			documents = append(documents, textindex.Document{
				// A text of its own, or it would count as another's duplicate.
				ID: document, Passages: []textindex.Passage{{Text: document, Vector: vector}},
			})
		}
	}
	ix.mu.RUnlock()
	ix.vectors.Put(documents...)
}

// maxToolResult bounds what of a tool's result is searched and shown, in bytes.
const maxToolResult = 4 << 10

func newEntry(id string, raw json.RawMessage) *entry {
	e := &entry{id: strings.Clone(id), author: &author{}, extra: noExtra}
	var m memory.Message
	if json.Unmarshal(raw, &m) != nil || m.Failure != "" && !m.Partial {
		return e
	}
	e.author, e.ts, e.text = &author{m.Role, m.Name, m.Origin}, m.Timestamp, m.Content
	if m.Role == memory.RoleTool && len(e.text) > maxToolResult {
		e.text = strings.Clone(memory.Shorten(e.text, maxToolResult))
	}
	if strings.TrimSpace(e.text) == "" {
		e.text = ""
	}
	if starts := passages(e.text); starts != nil || m.Pasted != nil {
		e.extra = &extra{m.Pasted, starts}
	}
	return e
}

// entrySize is what an entry takes besides its strings, with its place in the index and in
// the list of ids.
const entrySize = 160

func (e *entry) size() int {
	return entrySize + len(e.id) + len(e.text) + 4*cap(e.passages)
}

// length returns the characters of the text.
func (e *entry) length() int { return utf8.RuneCountInString(e.text) }

func (e *entry) time() time.Time { return time.UnixMilli(int64(1000 * e.ts)) }

// passageLength is about how long the passages of a long message are, in bytes.
const passageLength = 900

// passages are where the passages of a text begin, but for the first: a long one is cut at
// paragraphs, lines, sentences or words.
func passages(text string) []int32 {
	var starts []int32
	for start := 0; len(text)-start > passageLength*3/2; {
		window := text[start : start+passageLength]
		length := len(memory.Shorten(text[start:], passageLength))
		for _, end := range []string{"\n\n", "\n", ". ", " "} {
			if i := strings.LastIndex(window, end); i > passageLength/2 {
				length = i + len(end)
				break
			}
		}
		start += length
		starts = append(starts, int32(start))
	}
	return slices.Clip(starts)
}

// piece is where a passage stands in the text.
func (e *entry) piece(passage int) (start, end int) {
	end = len(e.text)
	if passage > 0 {
		start = int(e.passages[passage-1])
	}
	if passage < len(e.passages) {
		end = int(e.passages[passage])
	}
	return start, end
}

// indexed are the passages as they are searched: with their speakers.
func (e *entry) indexed() []textindex.Passage {
	list := make([]textindex.Passage, len(e.passages)+1)
	for i := range list {
		start, end := e.piece(i)
		list[i].Text = e.text[start:end]
		if e.name != "" {
			list[i].Text = e.name + ": " + list[i].Text
		}
	}
	return list
}
