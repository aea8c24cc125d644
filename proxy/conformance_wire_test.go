package proxy_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// wireLog records the requests and answers of a run for readers: each call of a client, the vendor's requests, and the
// client's answer. Signatures and ids differ from run to run. They are numbered in the order of their appearance.
type wireLog struct {
	world  *world
	text   strings.Builder
	calls  int
	counts map[string]int    // of requests by vendor, and of signatures and ids by kind
	names  map[string]string // of signatures and ids
}

// randomText matches signatures and ids, createdTime matches times.
var (
	randomText  = regexp.MustCompile(`"(?:signature|data)":"([^"]{8,})"|\b(toolu|call|msg|chatcmpl)[_-]\w{20,}`)
	createdTime = regexp.MustCompile(`"created":\d+`)
)

func (l *wireLog) plain(text string) string {
	for _, found := range randomText.FindAllStringSubmatch(text, -1) {
		value, kind := found[1], "signature"
		if found[2] != "" {
			value, kind = found[0], found[2]
		}
		if l.names[value] == "" {
			l.counts[kind]++
			l.names[value] = fmt.Sprintf("<%s %d>", kind, l.counts[kind])
		}
		text = strings.ReplaceAll(text, value, l.names[value])
	}
	return createdTime.ReplaceAllString(text, `"created":<time>`)
}

// section writes one part of a call as a file of a txtar archive.
func (l *wireLog) section(title, text string) {
	fmt.Fprintf(&l.text, "-- %d %s --\n%s\n", l.calls, title, strings.TrimSuffix(l.plain(text), "\n"))
}

func (l *wireLog) call(path string, header http.Header, body []byte, got answered) {
	l.calls++
	l.section("client", path+headers(header, "Anthropic-Beta", "X-AG-Conversation-Id")+"\n"+laidOut(string(body)))
	for _, name := range slices.Sorted(maps.Keys(l.world.vendors)) {
		all := l.world.vendors[name].Requests()
		for _, r := range all[l.counts[name]:] {
			sent := laidOut(string(r.Body))
			if string(r.Body) == string(body) {
				sent = "as it came"
			}
			l.section("to "+name, r.Path+headers(r.Header, "Anthropic-Beta", "X-AG-Conversation-Id")+"\n"+sent)
			if r.Rejection != "" {
				l.section(name+" refuses", r.Rejection)
			}
		}
		l.counts[name] = len(all)
	}
	l.section("answer", fmt.Sprintf("%d %s%s\n%s", got.status, got.header.Get("Content-Type"),
		headers(got.header, "X-AG-Mended"), laidOut(got.body)))
}

// headers returns a line for each of these headers.
func headers(h http.Header, names ...string) (lines string) {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			lines += "\n" + name + ": " + v
		}
	}
	return lines
}

// laidOut returns JSON with one line per message, and one per block if a message has several.
func laidOut(body string) string {
	indents := map[int]string{} // by the offset of a line
	for _, name := range []string{"messages", "content"} {
		list := gjson.Get(body, name)
		for _, m := range list.Array() {
			if list.IsArray() {
				indents[m.Index] = "\n  "
			}
			content := m.Get("content")
			for _, b := range content.Array() {
				if content.IsArray() && len(content.Array()) > 1 {
					indents[b.Index] = "\n    "
				}
			}
		}
	}
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(indents))) {
		body = body[:at] + indents[at] + body[at:]
	}
	return body
}
