package loader

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/html/charset"
)

func init() { mailFile.into, webArchive.into = readMail, readMail } // here, because attachments are of any format

// readMail reads an .eml (RFC 5322, MIME): the headers that people see, the text,
// else the HTML, and a section for each attachment that is of a readable format.
func readMail(b *builder, f file) error {
	message, err := mail.ReadMessage(bytes.NewReader(mailHeader(f.data)))
	if err != nil {
		return damaged(labelMail, err)
	}
	var headers strings.Builder
	for _, name := range []string{"From", "To", "Cc", "Date", "Subject"} {
		value := headerText(message.Header.Get(name))
		if value == "" {
			continue
		}
		headers.WriteString(name + ": " + value + "\n")
		switch date, err := message.Header.Date(); {
		case name == "Subject":
			b.doc.Title = value
		case name != "Date":
			b.meta(strings.ToLower(name), value)
		case err == nil:
			b.meta("date", date.UTC().Format(time.RFC3339)) // sorts as text
		}
	}
	if f.declaredFormat() != webArchive { // whose header no reader sees
		b.paragraph(headers.String())
	}
	m := mailReader{builder: b, depth: f.depth}
	return m.part(textproto.MIMEHeader(message.Header), message.Body)
}

var headerLine = regexp.MustCompile(`^[!-9;-~]+[ \t]*:`)

// mailHeader is the message without lines of its header that are none, as the line
// "From " of a mailbox.
func mailHeader(data []byte) []byte {
	out, offset := make([]byte, 0, len(data)), 0
	for line := range bytes.Lines(data) {
		offset += len(line)
		if len(bytes.TrimSpace(line)) == 0 {
			break
		}
		if headerLine.Match(line) || len(out) > 0 && (line[0] == ' ' || line[0] == '\t') {
			out = append(out, line...)
		}
	}
	return append(append(out, "\r\n"...), data[offset:]...)
}

// headerText is a header's value as people read it.
func headerText(value string) string {
	words := mime.WordDecoder{CharsetReader: charset.NewReaderLabel}
	if text, err := words.DecodeHeader(value); err == nil {
		value = text
	}
	if text, err := decoded([]byte(value), ""); err == nil {
		value = text
	}
	return oneLine(strings.ToValidUTF8(value, "\ufffd"))
}

// mailReader walks through the parts of a message.
type mailReader struct {
	*builder
	depth int
}

// part reads a part and those in it.
func (m *mailReader) part(header textproto.MIMEHeader, body io.Reader) error {
	if m.depth++; m.depth > deepestFile {
		return refuse(TooLarge, "the e-mail's parts lie more than %d deep in each other", deepestFile)
	}
	defer func() { m.depth-- }()
	kind, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) || !strings.Contains(kind, "/") {
		kind = "text/plain"
	}
	if kind == "multipart/encrypted" || strings.HasSuffix(kind, "/pkcs7-mime") &&
		parameters["smime-type"] != "signed-data" {
		return refuse(Encrypted, "the e-mail is encrypted: save it decrypted")
	}
	if boundary := parameters["boundary"]; boundary != "" && strings.HasPrefix(kind, "multipart/") {
		return m.parts(kind, multipart.NewReader(watched{m.ctx, body}, boundary))
	}
	data, err := io.ReadAll(watched{m.ctx, body})
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // the last boundary may be missing
		return damaged(labelMail, err)
	}
	data = transferred(header.Get("Content-Transfer-Encoding"), data)
	name := cmp.Or(nameIn(header.Get("Content-Disposition")), nameIn(header.Get("Content-Type")))
	disposition, _, _ := strings.Cut(strings.ToLower(header.Get("Content-Disposition")), ";")
	attached := strings.TrimSpace(disposition) == "attachment"
	switch {
	case attached || name != "" || kind != "text/plain" && kind != "text/html":
		return m.attachment(name, kind, data, attached)
	case kind == "text/html":
		title := m.doc.Title
		err = readHTML(m.builder, file{contentType: mime.FormatMediaType(kind, parameters), data: data})
		m.doc.Title = title
		return err
	}
	text, err := decode(data, parameters["charset"])
	if err != nil {
		return err
	}
	if strings.EqualFold(parameters["format"], "flowed") {
		text = unwrapped(text, strings.EqualFold(parameters["delsp"], "yes"))
	}
	m.paragraph(squeeze(text))
	return nil
}

// unwrapped returns text without its soft line breaks (RFC 3676, 4). If join is set, words of
// a script without spaces are joined without one.
func unwrapped(text string, join bool) string {
	var out strings.Builder
	soft, previous := false, ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\r\n", "\n")) {
		quote := line[:len(line)-len(strings.TrimLeft(line, ">"))]
		if soft && quote == previous && line != "-- \n" {
			line = strings.TrimPrefix(line[len(quote):], " ")
		} else if soft {
			out.WriteByte('\n')
		}
		previous = quote
		if soft = strings.HasSuffix(line, " \n") && line != "-- \n"; soft {
			line = strings.TrimSuffix(line, map[bool]string{true: " \n", false: "\n"}[join])
		}
		out.WriteString(line)
	}
	return out.String()
}

// mailPart is an unread part of a message.
type mailPart struct {
	header textproto.MIMEHeader
	body   []byte
}

// parts reads the parts of a multipart.
func (m *mailReader) parts(kind string, parts *multipart.Reader) error {
	var alternatives []mailPart
	for {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return m.chosen(alternatives)
		}
		if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
			m.skip("unreadable parts", 1)
			continue
		}
		if err != nil {
			return damaged(labelMail, err)
		}
		if kind != "multipart/alternative" {
			if err := m.part(p.Header, p); err != nil {
				return err
			}
			continue
		}
		data, err := io.ReadAll(p)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return damaged(labelMail, err)
		}
		alternatives = append(alternatives, mailPart{p.Header, data})
	}
}

// mostCompared bounds, in bytes, the parts of a mail that are compared.
const mostCompared = 200_000

// chosen reads the plain text of alternatives if it covers the richest part, and the richest part if it covers the plain
// text. If neither covers the other, it reads both.
func (m *mailReader) chosen(list []mailPart) error {
	var plain, rich *mailPart
	for i := range list {
		kind, _, _ := mime.ParseMediaType(list[i].header.Get("Content-Type"))
		switch {
		case kind != "text/plain" && kind != "":
			if rich == nil || kind == "text/html" || strings.HasPrefix(kind, "multipart/") {
				rich = &list[i]
			}
		case plain == nil && len(bytes.TrimSpace(list[i].body)) > 0:
			plain = &list[i]
		}
	}
	if plain != nil && rich != nil {
		switch words, other := m.words(plain), m.words(rich); {
		case words == nil || other == nil: // not compared
		case covers(words, other):
			rich = nil
		case covers(other, words):
			plain = nil
		}
	}
	for _, part := range []*mailPart{plain, rich} {
		if part != nil {
			if err := m.part(part.header, bytes.NewReader(part.body)); err != nil {
				return err
			}
		}
	}
	return nil
}

// words returns the words of a part, or nil if the part is too large to be compared.
func (m *mailReader) words(part *mailPart) map[string]bool {
	if len(part.body) >= mostCompared {
		return nil
	}
	words := map[string]bool{}
	reader := mailReader{builder: m.loader.builder(m.ctx), depth: m.depth}
	if reader.part(part.header, bytes.NewReader(part.body)) == nil {
		for word := range strings.FieldsSeq(reader.text.String()) {
			words[strings.ToLower(strings.TrimFunc(word, unicode.IsPunct))] = true
		}
	}
	return words
}

// covers reports whether a part has most words and all figures of another part.
func covers(words, other map[string]bool) bool {
	common := 0
	for word := range other {
		if words[word] {
			common++
		} else if strings.ContainsAny(word, "0123456789") && !strings.ContainsAny(word, "/@") {
			return false
		}
	}
	return common*2 >= len(other)
}

// namePart matches a name in a header, or a part of one.
var namePart = regexp.MustCompile(`(?is)\b(?:file)?name(\*?\d*\*?)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)`)

// nameIn returns the name of a file in a header. It may be in several parts, and in an encoding of its own (RFC 2231).
func nameIn(header string) string {
	plain, extended, label := "", "", ""
	for _, m := range namePart.FindAllStringSubmatch(header, -1) {
		value := strings.Trim(strings.TrimSpace(m[2]), `"`)
		if m[1] == "" {
			plain = headerText(strings.ReplaceAll(value, `\"`, `"`))
			continue
		}
		if parts := strings.SplitN(value, "'", 3); label == "" && len(parts) == 3 {
			label, value = parts[0], parts[2]
		}
		if decoded, err := url.PathUnescape(value); err == nil && strings.HasSuffix(m[1], "*") {
			value = decoded
		}
		extended += value
	}
	text, _ := decode([]byte(extended), label)
	return cmp.Or(oneLine(text), plain)
}

var notBase64 = regexp.MustCompile(`[^A-Za-z0-9+/]+`)

// transferred undoes a transfer encoding (RFC 2045, 6), as far as it can be.
func transferred(encoding string, data []byte) []byte {
	encoding, _, _ = strings.Cut(encoding, "(") // a comment
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "quoted-printable":
		if plain, err := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(data))); err == nil {
			return plain
		}
	case "base64":
		plain, _ := base64.RawStdEncoding.AppendDecode(nil, notBase64.ReplaceAll(data, nil)) // up to a digit too many
		return plain
	}
	return data
}

// attachment reads what is attached as a section of its own, and counts it if it
// cannot be read.
func (m *mailReader) attachment(name, kind string, data []byte, attached bool) error {
	if name == "" && kind == "message/rfc822" {
		name = "message.eml"
	}
	f := file{name: name, contentType: kind, data: data, depth: m.depth}
	switch {
	case strings.HasPrefix(kind, "image/"):
		return m.omit("pictures", name, attached)
	case f.declaredFormat() == nil:
		return m.omit("attachments", name, attached)
	}
	inner := m.loader
	inner.Limits = m.limits
	inner.Limits.Text = max(1, m.limits.Text-m.text.Len()) // 0 is the default
	d, err := inner.load(m.ctx, f)
	switch code := CodeOf(err); {
	case err == nil:
		m.include("attachment "+oneLine(name), d)
	case code == "" || code == TooLarge || code == Timeout:
		return err
	default:
		return m.omit("attachments", name, attached)
	}
	return m.err
}

// omit counts an unread part, and names it if it is attached.
func (m *mailReader) omit(what, name string, attached bool) error {
	if m.skip(what, 1); attached && name != "" {
		m.paragraph("Attachment that was not read: " + oneLine(name))
	}
	return m.err
}
