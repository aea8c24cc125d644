package openaiapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/envelope"
	webapi "mneme/webmemory/api"
)

// This file is about files in messages. Those of the newest one become documents of the chat before the message is
// posted, by the route that documents have, as its caller: what it takes, and what it refuses with, is that route's.

// fileTime bounds how long the files of a message are waited for. One may be read for two minutes.
const fileTime = 3 * time.Minute

// FilePart is a file as a part of a message.
type FilePart struct {
	Name  string `json:"filename"`
	Data  string `json:"file_data"` // a data: URL of base64, or the base64 alone
	ID    string `json:"file_id"`
	URL   string `json:"file_url"`
	index int    // its place among the parts
}

// name is the last part of the file's name, as it can stand in a line and in a path.
func (f FilePart) name() string {
	name := strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, f.Name[strings.LastIndexAny(f.Name, `/\`)+1:]))
	if strings.Trim(name, ".") == "" {
		return "file"
	}
	return name
}

// fileLine is what a message says of a file that it comes with.
var fileLine = regexp.MustCompile(`(?m)^\[file: .*\]$`)

// WithFiles is the text of a message that comes with files: behind it one line for each says that it was there.
func WithFiles(text string, files []FilePart) string {
	between := "\n\n"
	for _, f := range files {
		name, _ := envelope.Label(f.name())
		text += between + "[file: " + name + "]"
		between = "\n"
	}
	if len(files) > 0 {
		text = strings.TrimSpace(text)
	}
	return text
}

// upload is a file that is to become a document.
type upload struct {
	param       string // the part that it came in
	name        string
	contentType string
	bytes       []byte
}

// readFiles reads the files of the user's newest message. Those of older ones are documents already, unless somebody
// has removed them.
func (c *call) readFiles() error {
	defer func() {
		for _, m := range c.Messages {
			clear(m.Content.Files) // they may be large, and the call is there as long as its run
		}
	}()
	last := c.last()
	if last.Role != memory.RoleUser || c.bare {
		return nil
	}
	for _, f := range last.Content.Files {
		param := fmt.Sprintf("messages[%d].content[%d]", last.index, f.index)
		switch {
		case f.Data == "" && f.ID+f.URL != "":
			return unsupportedPart(param, "A file comes with its message, in base64 as file_data: there are no stored files "+
				"for a file_id to name, and no file_url is fetched.")
		case c.chat == nil:
			return unsupportedPart(param, "A file becomes a document of a chat, and the request names none: send the header "+
				"Mneme-Chat-Id or metadata.chat_id, or use the base URL /c/{chat}/v1.")
		}
		kind, data := "", f.Data
		if rest, ok := strings.CutPrefix(data, "data:"); ok {
			kind, data, _ = strings.Cut(rest, ";base64,")
		}
		raw, err := base64.StdEncoding.DecodeString(data)
		if err != nil || len(raw) == 0 {
			return invalid(param, "file_data is a file's bytes in base64, as data:application/pdf;base64,JVBE….")
		}
		c.uploads = append(c.uploads, upload{param: param, name: f.name(), contentType: typeOf(kind), bytes: raw})
	}
	return nil
}

// typeOf is the Content-Type by which a file is put. With that of JSON, or of a form, it would be taken for a
// description of a document.
func typeOf(kind string) string {
	switch parsed, params, err := mime.ParseMediaType(kind); {
	case err != nil, parsed == "application/json", parsed == "application/x-www-form-urlencoded":
		return "application/octet-stream"
	default:
		return mime.FormatMediaType(parsed, params)
	}
}

// giveFiles makes the files of a message documents of the chat, and returns when each can be found there.
func giveFiles(ctx context.Context, h *Handler, chat memory.Chat, files []upload) error {
	ctx, cancel := context.WithTimeout(ctx, fileTime)
	defer cancel()
	for _, f := range files {
		if err := putFile(ctx, h, chat, f); err != nil {
			fail := *failureOf(err)
			fail.Param = f.param
			return &fail
		}
	}
	return nil
}

// putFile makes a file a document, or many. The id has the hash of the bytes, so that a file that is sent again, or twice
// at once, is the same document, and another file of the same name is another one.
func putFile(ctx context.Context, h *Handler, chat memory.Chat, f upload) error {
	sum := sha256.Sum256(f.bytes)
	path := fmt.Sprintf("%s/documents/%x/%s?%s", webapi.ChatPath(chat), sum[:8], url.PathEscape(f.name),
		url.Values{"source": {f.name}}.Encode())
	header := http.Header{"Content-Type": {f.contentType}}
	resp, err := h.Memory.Send(ctx, http.MethodPut, path, header, bytes.NewReader(f.bytes))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusMultiStatus {
		return nil
	}
	for lines := json.NewDecoder(resp.Body); ; { // a result for each document of the file, of which some were refused
		var line struct{ ID, Code, Reason string }
		if err := lines.Decode(&line); err != nil {
			return err
		}
		if line.Reason != "" {
			return &api.Problem{Status: http.StatusUnprocessableEntity, Code: cmp.Or(line.Code, webapi.CodeBadRequest),
				Message: fmt.Sprintf("The document %.80s was refused: %s.", line.ID, line.Reason)}
		}
	}
}
