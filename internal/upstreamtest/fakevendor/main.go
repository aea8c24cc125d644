// Command fakevendor serves a strict fake of a vendor of models on loopback, for
// trials by hand: point a gateway or a client at the URL that it prints. Say "use
// the tool" to it to be asked for a call of the first tool that was offered. With
// -script the user's words say what it answers, one answer after the other:
//
//	SCRIPT [[{"think":"Look."},{"use":"Read","input":{"file_path":"/a"}},{"use":"Read","input":{"file_path":"/b"}}],
//	        [{"redacted":true},{"say":"Both are there."}]]
//
// Faults of the next requests are posted to /fail of that URL, in their order:
//
//	[{"status":429,"retry_after":60,"times":3},{"status":529,"first":"messages","message":"Overloaded"}]
//
// An empty list makes the vendor well again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mneme/internal/upstreamtest"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the command line.
type options struct {
	listen string
	config upstreamtest.Config
}

var vendors = map[string]upstreamtest.Vendor{
	"anthropic": upstreamtest.Anthropic, "kimi": upstreamtest.Kimi, "deepseek": upstreamtest.DeepSeek,
	"glm": upstreamtest.GLM, "chat": upstreamtest.Chat, "openai": upstreamtest.OpenAI,
	"google": upstreamtest.Google,
}

// parse reads the command line; what goes wrong has been told to stderr.
func parse(args []string, stderr io.Writer) (o options, err error) {
	var vendor, models, betas string
	var script bool
	var delay time.Duration
	f := flag.NewFlagSet("fakevendor", flag.ContinueOnError)
	f.SetOutput(stderr)
	c := &o.config
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "loopback `address` to serve on; port 0 is any free one")
	f.StringVar(&vendor, "vendor", "anthropic", "whose rules to follow: "+
		strings.Join(slices.Sorted(maps.Keys(vendors)), ", "))
	f.StringVar(&c.Name, "name", "", "`name` of the backend that signatures are bound to; the vendor's if empty")
	f.StringVar(&models, "models", "", "`names` of the models served, parted by commas; any if empty")
	f.StringVar(&c.APIKey, "key", "", "`key` that a caller must present; none if empty")
	f.BoolVar(&c.Thinking.PrefixCheck, "prefix-check", false, "anthropic: bind signatures to the conversation before them")
	f.BoolVar(&c.Thinking.RejectOtherModels, "reject-other-models", false,
		"anthropic: refuse thinking of another model instead of dropping it")
	f.IntVar(&c.Thinking.Window, "window", 0, "`tokens` of input that are taken; 0 is any number")
	f.StringVar(&betas, "betas", "",
		"anthropic: `values` of the anthropic-beta header, parted by commas, that are taken besides the known ones")
	f.BoolVar(&script, "script", false,
		"answer what the user's last words say behind \"SCRIPT \": a JSON array of answers, each an array of\n"+
			`{"say":TEXT}, {"think":TEXT}, {"omitted":true}, {"redacted":true}, {"compact":TEXT} and {"use":TOOL,"input":OBJECT}; and`+"\n"+
			`{"cut":{"after":EVENTS}}, with "inside":true in the middle of the next event, "clean":true as if it`+"\n"+
			`were over, "error":STATUS by an error event; "times":N is the first N times that the user says it`)
	f.StringVar((*string)(&c.Chat.Template), "template", "", "chat: order of roles: system-first, alternating")
	f.BoolVar(&c.Responses.Azure, "azure", false, "openai: refuse in the words of Azure")
	f.BoolVar(&c.Responses.OldWording, "old-wording", false, "openai: name encrypted content by its ends, not its item")
	f.BoolVar(&c.Responses.InStream, "refuse-in-stream", false, "openai: refuse encrypted content by events of the stream")
	f.DurationVar(&delay, "delay", 0, "wait before each event, for example 50ms")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err = loopback(o.listen)
	if vendors[vendor] == "" {
		err = errors.Join(err, fmt.Errorf("-vendor %q is not known; %s", vendor, f.Lookup("vendor").Usage))
	}
	if f.NArg() > 0 {
		err = errors.Join(err, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return o, err
	}
	c.Vendor = vendors[vendor]
	if models != "" {
		c.Models = strings.Split(models, ",")
	}
	if betas != "" {
		c.Thinking.Betas = append(upstreamtest.KnownBetas(), strings.Split(betas, ",")...)
	}
	if script {
		c.Answer = (&scripts{cut: map[string]int{}}).answer
	}
	if delay > 0 {
		c.Stream.Pause = func(ctx context.Context, _ int) {
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
		}
	}
	return o, nil
}

// loopback refuses an address that others could reach: the fake lets every caller in.
func loopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("-listen %q is no address: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() {
		return fmt.Errorf("-listen %q is not on loopback", address)
	}
	return nil
}

// graceTime is how long answers that are under way may take to end.
const graceTime = 2 * time.Second

// run serves until ctx ends and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	o.config.Observe = func(r upstreamtest.Request) { fmt.Fprintln(stdout, line(r)) }
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailure
	}
	vendor := upstreamtest.New(o.config)
	mux := http.NewServeMux()
	mux.Handle("/", vendor)
	mux.HandleFunc("POST /fail", fail(vendor))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }() // ends with Shutdown or Close
	fmt.Fprintf(stdout, "http://%s\n", l.Addr())
	select {
	case err = <-served:
		fmt.Fprintln(stderr, err)
		return exitFailure
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // what is still under way has had its time
	}
	<-served
	return exitOK
}

// line tells of one request.
func line(r upstreamtest.Request) string {
	s := fmt.Sprintf("%d %s", r.Status, r.Endpoint)
	if r.Model != "" {
		s += " " + r.Model
	}
	if r.Stream {
		s += " stream"
	}
	if r.Thinking {
		s += " thinking"
	}
	thoughts, documents := contents(r.Body)
	if thoughts > 0 {
		s += fmt.Sprintf(" replayed %d", thoughts)
	}
	if documents > 0 {
		s += fmt.Sprintf(" documents %d", documents)
	}
	if len(r.Dropped) > 0 {
		s += " dropped " + strings.Join(r.Dropped, " ")
	}
	if r.Missing > 0 {
		s += fmt.Sprintf(" lost %d", r.Missing)
	}
	if len(r.LostCompactions) > 0 {
		s += " lost " + strings.Join(r.LostCompactions, " ")
	}
	if r.Rejection != "" {
		s += ": " + r.Rejection
	}
	return s
}

// contents is how many blocks of thinking, messages with reasoning or items of it, and how
// many documents and images a request's messages, or its input, have.
func contents(body []byte) (thoughts, documents int) {
	var request struct {
		Messages []struct {
			Content   jsontext.Value `json:"content"`
			Reasoning string         `json:"reasoning_content"`
		} `json:"messages"`
		Input []struct {
			Type    string         `json:"type"`
			Content jsontext.Value `json:"content"`
			Output  jsontext.Value `json:"output"`
		} `json:"input"`
	}
	_ = json.Unmarshal(body, &request) // a body of another shape shows none
	var count func(content jsontext.Value)
	count = func(content jsontext.Value) {
		var blocks []struct {
			Type    string         `json:"type"`
			Content jsontext.Value `json:"content"` // of a result
		}
		if json.Unmarshal(content, &blocks) != nil {
			return // a text
		}
		for _, b := range blocks {
			switch b.Type {
			case "thinking", "redacted_thinking":
				thoughts++
			case "document", "file", "image", "image_url", "input_file", "input_image":
				documents++
			case "tool_result":
				count(b.Content)
			}
		}
	}
	for _, m := range request.Messages {
		if m.Reasoning != "" {
			thoughts++
		}
		count(m.Content)
	}
	for _, item := range request.Input {
		if item.Type == "reasoning" {
			thoughts++
		}
		count(item.Content)
		count(item.Output)
	}
	return thoughts, documents
}
