package chats

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access/fair"
	"mneme/access/jsonbound"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
)

// Portable exports, imports and forks chats. An import fills an empty chat under the chat's lease. If it does not
// complete, all of it is undone.
type Portable struct {
	*node.Core
	Histories *past.Histories
	Eraser    *erase.Eraser
	Leaser    *turns.Leaser
}

// ExportChat handles GET …/export. The lines are webapi.ExportLine: the messages of the chat's own history, then the
// subagents' by name, oldest first. The notes follow in the same order, then the quarantine. The counts in the last
// line reveal a truncated response.
func (s *Portable) ExportChat(c *gin.Context, chat memory.Chat) error {
	ctx := c.Request.Context()
	stored, err := s.Store.Chats.Histories(ctx, chat, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	if len(stored) == 0 {
		return problem.ErrUnknownChat
	}
	c.Header("Content-Type", "application/x-ndjson")
	c.Header("Content-Disposition", fmt.Sprintf("attachment; filename=%q", chat.ID()+".ndjson"))
	out := bufio.NewWriterSize(c.Writer, 64<<10)
	if err := s.exportLines(ctx, stored, func(line webapi.ExportLine) error { return writeLine(out, line) }); err != nil {
		return broken(c, err)
	}
	if err := out.Flush(); err != nil {
		return broken(c, err)
	}
	return nil
}

func (s *Portable) exportLines(ctx context.Context, stored []redisstore.Stored,
	write func(webapi.ExportLine) error) error {
	count := 0
	for _, h := range stored {
		onGap := func(gap webapi.HistoryGap, _ error) error {
			return write(webapi.ExportLine{Subagent: h.Key.Agent(), Missing: &gap})
		}
		for raw, err := range s.Histories.Remembered(ctx, h.Key, onGap) {
			if err == nil {
				count++
				err = write(webapi.ExportLine{Subagent: h.Key.Agent(), Message: raw})
			}
			if err != nil {
				return err
			}
		}
	}
	notes, err := s.exportNotes(ctx, stored, write)
	if err != nil {
		return err
	}
	hidden, err := s.Store.Chats.Quarantined(ctx, stored[0].Key.Chat())
	if err == nil && len(hidden) > 0 {
		err = write(webapi.ExportLine{Quarantine: hidden})
	}
	if err != nil {
		return err
	}
	return write(webapi.ExportLine{Messages: &count, Notes: notes})
}

// exportNotes writes the notes of histories and returns their number.
func (s *Portable) exportNotes(ctx context.Context, stored []redisstore.Stored,
	write func(webapi.ExportLine) error) (count int, err error) {
	for _, h := range stored {
		if h.Notes == 0 {
			continue
		}
		notes, err := s.Store.Notes.Read(ctx, h.Key)
		if err != nil {
			return count, err
		}
		for i := range notes[0] {
			count++
			if err := write(webapi.ExportLine{Subagent: h.Key.Agent(), Note: &notes[0][i]}); err != nil {
				return count, err
			}
		}
	}
	return count, nil
}

// broken returns err if the response has not started. Otherwise it aborts the connection, so that the client notices.
func broken(c *gin.Context, err error) error {
	if !c.Writer.Written() {
		c.Writer.Header().Del("Content-Disposition")
		return err
	}
	_ = c.Error(err)
	panic(http.ErrAbortHandler)
}

func writeLine(w io.Writer, line any) error {
	text, err := memory.EncodeJSON(line)
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	return err
}

// Limits of an import.
const (
	maxImport     = 1 << 30 // bytes of the body
	maxImportLine = 2 << 20 // bytes of a line
)

// ImportChat handles POST …/import. It stores lines of ExportChat in a chat without memory, under the chat's lease. If
// it fails, it erases what it stored.
func (s *Portable) ImportChat(c *gin.Context, chat memory.Chat) error {
	ctx := c.Request.Context()
	var out webapi.Imported
	err := s.Leaser.UnderTurn(ctx, chat, func(ctx context.Context, w *runs.Writer) (err error) {
		if err = s.Histories.IsEmpty(ctx, chat); err != nil {
			return err
		}
		out, err = s.fillWhole(ctx, w, func(in *importing) error {
			return in.read(ctx, http.MaxBytesReader(c.Writer, c.Request.Body, maxImport))
		})
		return err
	})
	return api.Answer(c.Writer, http.StatusCreated, out, err)
}

// fillWhole stores everything that fill adds, or nothing. If this process dies, the next holder of the chat's lease
// undoes the import.
func (s *Portable) fillWhole(ctx context.Context, w *runs.Writer, fill func(*importing) error) (
	out webapi.Imported, err error) {
	if err := s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, erase.PendingImport, "", s.Cfg.Lease); err != nil {
		return out, err
	}
	in := importing{portable: s, writer: w, notes: map[memory.Key][]memory.Note{}}
	if in.room, err = s.Room(ctx, w.Chat.Tenant()); err == nil {
		err = fill(&in)
	}
	if err == nil {
		err = in.close(ctx)
	}
	if err == nil {
		err = in.storeNotes(ctx)
	}
	if err == nil {
		err = s.Store.Chats.ListNew(ctx, w.Chat)
	}
	if err == nil {
		err = s.Store.Rewinds.Pending(ctx, w.Number, w.Chat, "", "", 0)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), node.StoreTimeout)
		defer cancel()
		return out, errors.Join(err, s.Eraser.UndoImport(ctx, w, slices.AppendSeq(in.keys, maps.Keys(in.notes))...))
	}
	return webapi.Imported{Messages: in.count, Histories: len(in.keys), Notes: in.noteCount, Missing: in.missing}, nil
}

// importing is a running import.
type importing struct {
	portable *Portable
	writer   *runs.Writer

	keys      []memory.Key         // histories begun, in order
	into      *redisstore.Importer // importer of the last history; nil once it is closed
	ids       map[string]int       // ids in the last history, with the next number for equal messages
	count     int
	line      int
	complete  bool                         // the line with the counts was read
	notes     map[memory.Key][]memory.Note // stored after all messages
	noteCount int                          // total of notes

	hidden memory.Quarantine // stored after the notes

	bytes   int64 // size of the messages
	room    int64 // bytes that the tenant may still store
	missing int   // messages missing in a fork's source
}

func (in *importing) read(ctx context.Context, body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxImportLine)
	for {
		ok := false
		_ = fair.Block(ctx, func() error { ok = lines.Scan(); return nil })
		if !ok {
			break
		}
		line := bytes.TrimSpace(lines.Bytes())
		if in.line++; in.line == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // byte order mark of Windows editors
		}
		if err := in.take(ctx, line); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("Line %d has more than %d bytes.", in.line+1, maxImportLine)}
	case err != nil:
		return api.BodyError(err)
	case in.count+in.noteCount == 0:
		return problem.BadRequest("The body has no messages: it must be lines such as GET …/export gives.")
	}
	return nil
}

func (in *importing) take(ctx context.Context, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if err := jsonbound.Check(text, jsonbound.Depth, jsonbound.Members); err != nil {
		return in.refuse("%v", err)
	}
	var line webapi.ExportLine
	if err := json.Unmarshal(text, &line); err != nil {
		return in.refuse("it is no line of an export: %v", err)
	}
	switch {
	case in.complete:
		return in.refuse("it follows the line that ends the export")
	case line.Messages != nil:
		if in.complete = true; *line.Messages != in.count {
			return in.refuse("the export counts %d messages, %d came: it is not whole", *line.Messages, in.count)
		}
		if line.Notes != in.noteCount {
			return in.refuse("the export counts %d notes, %d came: it is not whole", line.Notes, in.noteCount)
		}
	case line.Note != nil:
		return in.note(line)
	case len(line.Quarantine) > 0:
		return in.hide(line.Quarantine)
	case line.Message != nil:
		return in.add(ctx, line)
	}
	return nil
}

// note collects a note as a proposal, because no person here has accepted it.
func (in *importing) note(line webapi.ExportLine) error {
	n, key := *line.Note, memory.ChatKey(in.writer.Chat)
	if line.Subagent != "" {
		key = memory.SubagentKey(line.Subagent, in.writer.Chat)
	}
	text, err := memory.NoteText(n.Text)
	switch {
	case err != nil:
		return in.refuse("%s", strings.TrimSuffix(problem.FromError(err).Message, "."))
	case !plainID.MatchString(n.ID):
		return in.refuse("the id of a note is 1 to 128 characters of A-Z a-z 0-9 . _ : -")
	case n.Replaces != "" && !plainID.MatchString(n.Replaces), n.Message != "" && !plainID.MatchString(n.Message):
		return in.refuse("an id has other characters than A-Z a-z 0-9 . _ : -, or more than 128")
	case !slices.Contains(authors, n.Author):
		return in.refuse("the author of a note is one of %s, not %.40q", strings.Join(authors, ", "), n.Author)
	case past.NoteAt(in.notes[key], n.ID) >= 0:
		return in.refuse("an earlier note of the history has the id %s too", n.ID)
	case len(in.notes[key]) == memory.MaxNotes:
		return in.refuse("a history has at most %d notes", memory.MaxNotes)
	}
	n.Text, n.State, n.Chat = text, memory.NoteProposed, ""
	in.notes[key] = append(in.notes[key], n)
	in.noteCount++
	return nil
}

func (in *importing) hide(entries memory.Quarantine) error {
	if err := past.CheckQuarantine(entries); err != nil {
		return in.refuse("%s", err.Message)
	}
	if in.hidden = append(in.hidden, entries...); len(in.hidden) > memory.MaxQuarantine {
		return in.refuse("a quarantine has at most %d entries", memory.MaxQuarantine)
	}
	return nil
}

// authors lists the valid authors of a note.
var authors = []string{memory.ByUser, memory.ByModel, memory.ByTool, memory.ByDocument, memory.ByOperator}

// plainID matches a valid id of a note or of its source message.
var plainID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// storeNotes stores the notes and the quarantine, after all messages.
func (in *importing) storeNotes(ctx context.Context) error {
	for key, notes := range in.notes {
		err := in.portable.Store.Notes.Change(ctx, in.writer.Number, key,
			func([]memory.Note) ([]memory.Note, error) { return notes, nil })
		if err != nil {
			return err
		}
	}
	if len(in.hidden) == 0 {
		return nil
	}
	_, err := in.portable.Store.Chats.Quarantine(ctx, in.writer.Chat, false, in.hidden...)
	return err
}

func (in *importing) refuse(format string, args ...any) error {
	return problem.BadRequest("Line %d: %s.", in.line, fmt.Sprintf(format, args...))
}

func (in *importing) add(ctx context.Context, line webapi.ExportLine) error {
	var m memory.Message
	if err := json.Unmarshal(line.Message, &m); err != nil {
		return in.refuse("%v", err)
	}
	switch {
	case m.Role != memory.RoleUser && m.Role != memory.RoleAssistant && m.Role != memory.RoleTool:
		return in.refuse("the role is user, assistant or tool, not %.40q", m.Role)
	case len(m.Content) > memory.MaxMessage:
		return in.refuse("the message has %d bytes, at most %d are kept", len(m.Content), memory.MaxMessage)
	case m.Role == memory.RoleTool && len(m.Content) > memory.MaxToolResult:
		return in.refuse("the tool's result has %d bytes, at most %d are kept", len(m.Content), memory.MaxToolResult)
	}
	key := memory.ChatKey(in.writer.Chat)
	if line.Subagent != "" {
		key = memory.SubagentKey(line.Subagent, in.writer.Chat)
	}
	if n := len(in.keys); n == 0 || in.keys[n-1] != key {
		if slices.Contains(in.keys, key) {
			return in.refuse("the messages of a history must follow one another")
		}
		if err := in.close(ctx); err != nil {
			return err
		}
		into, err := in.portable.Store.Archives.Import(ctx, in.writer.Number, key, in.portable.Cfg.MaxHistory)
		if err != nil {
			return err
		}
		in.keys, in.into, in.ids = append(in.keys, key), into, map[string]int{}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, line.Message); err != nil {
		return in.refuse("%v", err)
	}
	raw := json.RawMessage(compact.Bytes())
	id := m.ID
	if id == "" {
		base := memory.IDs([]json.RawMessage{raw})[0]
		id = base
		for ; in.ids[id] > 0; in.ids[base]++ { // an equal message came before
			id = fmt.Sprintf("%s%d", base[:len("x0123456789abcdef.")], in.ids[base])
		}
		raw = memory.WithID(raw, id)
	}
	if in.ids[id] > 0 {
		return in.refuse("an earlier message of the history has the id %s too", id)
	}
	if err := in.fits(ctx, len(raw)); err != nil {
		return err
	}
	in.ids[id]++
	in.count++
	return in.into.Add(ctx, raw)
}

// countedEvery is the number of bytes between usage updates, so that concurrent imports share the limit.
const countedEvery = 1 << 20

// fits counts a message's bytes. It returns ErrStorageFull if they exceed the tenant's limit.
func (in *importing) fits(ctx context.Context, bytes int) (err error) {
	s, tenant, previous := in.portable, in.writer.Chat.Tenant(), in.bytes
	in.bytes += int64(bytes)
	if in.room -= int64(bytes); in.room < 0 {
		return s.ErrStorageFull(tenant)
	}
	if in.bytes/countedEvery == previous/countedEvery || s.Cfg.Limiter.Stored(tenant) == 0 {
		return nil
	}
	if err = s.Store.Stored.Chat(ctx, in.writer.Chat, in.bytes); err == nil {
		in.room, err = s.Room(ctx, tenant)
	}
	return err
}

// close completes the last history.
func (in *importing) close(ctx context.Context) error {
	if in.into == nil {
		return nil
	}
	h, err := in.into.Close(ctx)
	if err != nil {
		return err
	}
	in.into = nil
	in.writer.Histories[h.Key()] = h
	in.portable.Cache.Put(h)
	return nil
}
