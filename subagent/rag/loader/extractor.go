package loader

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// ExtractorTime is how long an extractor may take for a file if nothing else is
// said.
const ExtractorTime = time.Minute

// Command is an Extractor that runs a program for each file: the file's bytes on
// its standard input, its text as UTF-8 on its standard output, with a form feed
// behind each page. It is killed with everything that it started when it takes too
// long or writes too much.
type Command struct {
	Args []string      // the program and its arguments; no shell reads them
	Time time.Duration // 0 for ExtractorTime
}

// Identity follows from what is run.
func (c Command) Identity() string { return identity("command", c.Args...) }

func (c Command) patience() time.Duration { return cmp.Or(c.Time, ExtractorTime) }

func (c Command) extract(b *builder, f file) error {
	ctx, cancel := extractorTime(b.ctx, c.patience())
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out := &bounded{limit: b.limits.Text, full: func() { stop(tooMuchText(b.limits)) }}
	stderr := &tail{}
	command := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(f.data), out, stderr
	command.Dir = os.TempDir()
	// A group of its own, so that its children end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second // a child that left the group may hold the pipes
	err := command.Run()
	if command.Process != nil {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // what it left behind
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return extractorFailed("the program that reads files of this type failed",
			fmt.Errorf("%s: %w: %s", c.Args[0], err, stderr.last()))
	}
	return b.extracted(out.buffer.Bytes())
}

// Service is an Extractor that asks a service over HTTP for each file, as Apache
// Tika's: PUT with the file's bytes and Content-Type, Accept: text/plain; the answer
// is the text, with a form feed behind each page. Redirects are not followed, and
// nothing is tried twice.
type Service struct {
	URL  string
	Time time.Duration // 0 for ExtractorTime
}

// Identity follows from what is asked.
func (s Service) Identity() string { return identity("url", s.URL) }

func (s Service) patience() time.Duration { return cmp.Or(s.Time, ExtractorTime) }

var extractorClient = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (s Service) extract(b *builder, f file) error {
	ctx, cancel := extractorTime(b.ctx, s.patience())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL, bytes.NewReader(f.data))
	if err != nil {
		return extractorFailed("the service that reads files of this type cannot be asked", err)
	}
	request.Header.Set("Accept", "text/plain")
	request.Header.Set("Content-Type", f.mediaType())
	answer, err := extractorClient.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return extractorFailed("the service that reads files of this type does not answer", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNoContent {
		return extractorFailed(fmt.Sprintf("the service that reads files of this type answered with status %d",
			answer.StatusCode), nil)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, int64(b.limits.Text)+1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return extractorFailed("the answer of the service that reads files of this type broke off", err)
	case len(text) > b.limits.Text:
		return tooMuchText(b.limits)
	}
	return b.extracted(text)
}

// mediaType is the type that the file is sent with: what the caller said, else what
// its name says.
func (f file) mediaType() string {
	if kind, _, err := mime.ParseMediaType(f.contentType); err == nil && kind != "application/octet-stream" {
		return f.contentType
	}
	return cmp.Or(mime.TypeByExtension(extensionOf(f.name)), http.DetectContentType(f.data))
}

func identity(kind string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return kind + "-" + hex.EncodeToString(sum[:6])
}

func extractorTime(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, extractorFailed("reading the file takes longer than "+limit.String(), nil))
}

// extractorFailed is the refusal for a failure that may be over the next time. The
// cause is for the operator: it may have names of this machine in it.
func extractorFailed(what string, cause error) *Error {
	return &Error{Code: ExtractorFailed, Sentence: what + ": try again, or ask the operator, whose log has the reason",
		Err: cause}
}

// extracted adds the text that an extractor gave.
func (b *builder) extracted(data []byte) error {
	if !utf8.Valid(data) && !mostlyUTF8(data) {
		return extractorFailed("what reads files of this type gave no UTF-8", errors.New("its output is not UTF-8"))
	}
	text := string(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err := isText(text); err != nil {
		return err
	}
	pages := strings.Split(text, "\f")
	if len(pages) == 1 {
		b.paragraph(squeeze(clean(text)))
		return nil
	}
	if last := len(pages) - 1; strings.TrimSpace(pages[last]) == "" {
		pages = pages[:last]
	}
	if len(pages) > b.limits.Pages {
		return refuse(TooLarge, "the file has more than %d pages", b.limits.Pages)
	}
	for i, page := range pages {
		b.page(i+1, page, false)
	}
	return nil
}

// bounded keeps what is written and stops a program that writes too much. The buffer is
// not embedded: its ReadFrom would go round the limit.
type bounded struct {
	buffer bytes.Buffer
	limit  int
	full   func()
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.buffer.Len()+len(p) > w.limit {
		w.full()
		return 0, errors.New("the output is too long")
	}
	return w.buffer.Write(p)
}

// tail keeps the end of what is written.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.data = append(t.data, p[max(0, len(p)-most):]...)
	t.data = t.data[max(0, len(t.data)-most):]
	return len(p), nil
}

// last is the last line, without control characters.
func (t *tail) last() string {
	text := strings.TrimSpace(clean(string(t.data)))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
