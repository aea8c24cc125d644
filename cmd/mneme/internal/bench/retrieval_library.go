package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// What a process that keeps documents searchable is to reach.
const (
	reachStartSmall = 15 // s, up to reachStartUpTo passages
	reachStartUpTo  = 300_000
	reachProcess    = 600 // MB, up to 500,000 passages
)

// libraryCollection is the collection that is searched.
const libraryCollection = "docs"

// LibraryFigures are what a process measures that keeps one collection searchable as
// an apiserver does.
type LibraryFigures struct {
	Start    float64 `json:"start"`   // s until all is searchable
	CPU      float64 `json:"cpu"`     // s that the processors worked for that
	Median   float64 `json:"median"`  // ms, of searches
	Tail     float64 `json:"tail"`    // ms, 95 of 100
	Heap     float64 `json:"heap"`    // MB in use after the searches
	Process  float64 `json:"process"` // MB, resident after the searches; 0 where nobody says
	Most     float64 `json:"most"`    // MB, resident at most
	Snapshot float64 `json:"disk"`    // MB of files in the directory
}

// Library is run by a process of its own, which is what is measured: it loads what a
// Redis has, searches, and writes its snapshot into dir if there is none.
func Library(ctx context.Context, url, dir string, queries int, out io.Writer) error {
	client, err := connect(url)
	if err != nil {
		return err
	}
	defer client.Close()
	library := rag.NewLibrary(docstore.New(client, 0), rag.Options{Dir: dir, Log: zerolog.Nop()})
	defer library.Close()
	var f LibraryFigures
	start := time.Now()
	if err := library.Load(ctx, docstore.DefaultTenant, nil); err != nil {
		return err
	}
	f.Start, f.CPU = time.Since(start).Seconds(), worked()
	c, err := docstore.Named(docstore.DefaultTenant, libraryCollection)
	if err != nil {
		return err
	}
	asked := newTexts()
	var times []float64
	for range queries {
		q := asked.query()
		start := time.Now()
		if _, err := library.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: q.Text, History: q.History}); err != nil {
			return err
		}
		times = append(times, milliseconds(time.Since(start)))
	}
	slices.Sort(times)
	f.Median, f.Tail = quantile(times, 0.5), quantile(times, 0.95)
	f.Process, f.Most = statusMB("VmRSS"), statusMB("VmHWM")
	f.Heap = float64(heap()) / 1e6
	if f.Snapshot, err = awaitSnapshot(ctx, library, dir); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(f)
}

// awaitSnapshot lets the library write its snapshot, and gives the MB of its files.
func awaitSnapshot(ctx context.Context, library *rag.Library, dir string) (float64, error) {
	following, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); library.Follow(following, docstore.DefaultTenant) }()
	defer func() { stop(); <-done }()
	for {
		if there, _ := filepath.Glob(filepath.Join(dir, "*.snapshot")); len(there) > 0 {
			break
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	size := int64(0)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
	}
	return float64(size) / 1e6, err
}

// worked is for how many seconds processors have worked for this process.
func worked() float64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// statusMB is a figure of this process's memory as Linux has it, in MB; 0 elsewhere.
func statusMB(name string) float64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kib * 1024 / 1e6
		}
	}
	return 0
}

// library measures processes that keep as many passages searchable: one that begins
// with nothing but Redis, and one that begins with the snapshot of the first.
func (s *searched) library(ctx context.Context) error {
	server, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	s.options.Progress(fmt.Sprintf("storing %s passages in a redis-server", count(s.passages)))
	if err := s.store(ctx, server.url()); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mneme-bench-documents-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	start := 0.0
	if s.passages <= reachStartUpTo {
		start = reachStartSmall
	}
	for _, from := range []string{"Redis alone", "a snapshot"} {
		s.options.Progress(fmt.Sprintf("starting a process over %s passages from %s", count(s.passages), from))
		f, err := s.process(ctx, server.url(), dir)
		if err != nil {
			return err
		}
		s.row("a process starts from "+from, "s", f.Start, start)
		s.row("its start, on one processor alone", "s", f.CPU, 0)
		s.row("its searches, proven up to date by Redis, median", "ms", f.Median, 0)
		s.row("its searches, 95 of 100", "ms", f.Tail, 0)
		s.row("its heap", "MB", f.Heap, 0)
		s.row("its memory (RSS) after the searches", "MB", f.Process, reachProcess)
		s.row("its memory at most", "MB", f.Most, 0)
		s.row("its files", "MB", f.Snapshot, 0)
	}
	runtime.GC()
	return nil
}

func (s *searched) process(ctx context.Context, url, dir string) (f LibraryFigures, err error) {
	cmd := s.options.Library(ctx, url, dir, s.options.Queries)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	dieWithParent(cmd)
	if err := cmd.Run(); err != nil {
		return f, fmt.Errorf("a process that keeps documents: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return f, json.Unmarshal(out.Bytes(), &f)
}

// store puts the documents into a Redis.
func (s *searched) store(ctx context.Context, url string) error {
	client, err := connect(url)
	if err != nil {
		return err
	}
	defer client.Close()
	store := docstore.New(client, 0)
	c, err := docstore.Named(docstore.DefaultTenant, libraryCollection)
	if err == nil {
		_, err = store.Create(ctx, c)
	}
	made := newTexts()
	for number, passages := 0, 0; err == nil && passages < s.passages; {
		var batch []docstore.Document
		for len(batch) < perPut && passages < s.passages {
			d := made.document(number, min(perDocument, s.passages-passages))
			number, passages = number+1, passages+len(d.Passages)
			stored := docstore.Document{ID: d.ID, Title: d.Title, Source: d.ID}
			for _, p := range d.Passages {
				at := len(stored.Text)
				stored.Text += p.Text
				stored.Passages = append(stored.Passages, docstore.Passage{Start: at, End: len(stored.Text), Section: p.Section})
				stored.Text += "\n\n"
			}
			batch = append(batch, stored)
		}
		for _, w := range store.Put(ctx, c, batch...) {
			if err == nil {
				err = w.Err
			}
		}
	}
	return err
}

// LibraryProcess makes the process that runs Library.
type LibraryProcess func(ctx context.Context, url, dir string, queries int) *exec.Cmd
