package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"mneme/apiserver/api"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
	webapi "mneme/webmemory/api"
)

// uploads is how many files are sent at the same time; the server reads as many at once.
const uploads = 4

// loading is one run.
type loading struct {
	client library
	o      Options
	heads  map[string]docstore.Head // what there was of our origins, by id; not written once it is listed

	mu          sync.Mutex // guards what follows
	report      *Report
	progress    Progress
	unreachable bool            // it was noted that the server is away
	live        map[string]bool // ids of files with documents that stay; true: and of what lies below it
}

// list notes what the collection has of the sources.
func (l *loading) list(ctx context.Context, sources []source) error {
	l.heads, l.live = map[string]docstore.Head{}, map[string]bool{}
	outdated := 0
	for cursor, hasMore := "", true; hasMore; hasMore = cursor != "" {
		var page struct {
			Documents []docstore.Head `json:"documents"`
			Next      string          `json:"next_cursor"`
		}
		query := url.Values{"cursor": {cursor}, "limit": {strconv.Itoa(docstore.MaxPage)}}
		path := collectionPath(l.o.Collection) + "/documents?" + query.Encode()
		err := l.retry(ctx, func() error { return l.client.Call(ctx, http.MethodGet, path, &page) })
		if err != nil {
			return err
		}
		for _, h := range page.Documents {
			if slices.ContainsFunc(sources, func(s source) bool { return s.origin == h.Origin }) {
				l.heads[h.ID] = h
				if h.Outdated {
					outdated++
				}
			}
		}
		cursor = page.Next
	}
	if outdated > 0 {
		l.progress.Note(fmt.Sprintf("%d documents were read by another version of mneme or with other extractors: their "+
			"files are loaded again.", outdated))
	}
	return nil
}

// job is a file to be sent.
type job struct {
	file    loader.File
	id      string
	source  source
	refusal error // why it is not; nil for none
}

// walk lists the files. What is not for reading comes with the reason.
func (l *loading) walk(ctx context.Context, sources []source) (jobs []job, err error) {
	places := map[string]string{} // ids, and where their files lie
	for _, s := range sources {
		for f, err := range s.files(ctx) {
			if err != nil && loader.CodeOf(err) == "" {
				return nil, err
			}
			j := job{f, l.o.idIn(s, f), s, err}
			switch place, other := s.place(f), places[j.id]; {
			case err != nil:
			case other == place:
				continue // named twice, or a directory and a file in it
			case other != "":
				j.refusal = &loader.Error{Code: loader.Code(docstore.Conflict),
					Sentence: fmt.Sprintf("its id is that of %s: load each with a command and a --prefix of its own", other)}
			default:
				places[j.id] = place
			}
			l.live[j.id] = j.refusal != nil
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// load sends the files, several at a time, so that the server has the next one while it
// stores the last. The first error that is not one file's own ends the run.
func (l *loading) load(ctx context.Context, jobs []job) error {
	sending, groupCtx := errgroup.WithContext(ctx)
	sending.SetLimit(uploads)
	for _, j := range jobs {
		sending.Go(func() error {
			if groupCtx.Err() != nil {
				return nil
			}
			return l.file(groupCtx, j)
		})
	}
	return cmp.Or(sending.Wait(), context.Cause(ctx))
}

// file sends one file unless the collection has it as it is. An error ends the run.
func (l *loading) file(ctx context.Context, j job) error {
	l.mu.Lock()
	l.progress.File(j.file.ID)
	l.mu.Unlock()
	same, err := false, j.refusal
	if err == nil {
		same, err = l.unchanged(ctx, j)
	}
	if same {
		l.outcome(rag.Outcome{ID: j.id, Status: rag.OutcomeUnchanged}, j.source.directory)
		return nil
	}
	if err == nil {
		err = l.send(ctx, j)
	}
	refused, problem := rag.Outcome{ID: j.id, Status: rag.OutcomeRefused, Code: string(loader.CodeOf(err)), Err: err},
		new(api.Problem)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case refused.Code != "":
		refused.Reason = err.Error()
		l.outcome(refused, j.source.directory)
	case errors.Is(err, fs.ErrNotExist): // deleted since the walk saw it
		l.mu.Lock()
		delete(l.live, j.id)
		l.mu.Unlock()
	case errors.As(err, &problem) && slices.Contains(ofTheFile, problem.Status):
		refused.Code, refused.Reason = problem.Code, problem.Message
		l.outcome(refused, j.source.directory)
	default:
		return err
	}
	return nil
}

// ofTheFile are the statuses by which a server refuses one file and may take others.
var ofTheFile = []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge,
	http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}

// unchanged says whether the collection has a file as it is. One of many documents, of
// which some may be missing, is always sent.
func (l *loading) unchanged(ctx context.Context, j job) (bool, error) {
	h, ok := l.heads[j.id]
	if !ok || l.o.Charset != "" || h.Outdated || h.Raw == "" || h.Origin != j.source.origin ||
		!slices.Equal(h.MetadataKeys, slices.Sorted(maps.Keys(l.o.Metadata))) {
		return false, nil
	}
	for _, name := range h.MetadataKeys {
		if h.Metadata[name] != l.o.Metadata[name] {
			return false, nil
		}
	}
	hash, err := j.file.Hash(ctx)
	return hash == h.Raw, err
}

// send sends one file, again if the server or the way to it fails.
func (l *loading) send(ctx context.Context, j job) error {
	reported := 0
	return l.retry(ctx, func() error {
		reading, err := j.file.Open(ctx)
		if err != nil {
			return err
		}
		n := 0
		u := fileHead{id: j.id, origin: j.source.origin, charset: l.o.Charset, metadata: l.o.Metadata}
		return l.client.putFile(ctx, l.o.Collection, u, checkedReader{reading}, func(o rag.Outcome) {
			if n++; n > reported { // an attempt before may have told of the others
				reported = n
				l.outcome(o, j.source.directory)
			}
		})
	})
}

// checkedReader is a file on its way, which does not come to an end unless all of it is as the
// walk saw it.
type checkedReader struct{ *loader.Reading }

func (w checkedReader) Read(p []byte) (int, error) {
	n, err := w.Reading.Read(p)
	if errors.Is(err, io.EOF) {
		if _, changed := w.Sum(); changed != nil {
			err = changed
		}
	}
	return n, err
}

// How often a request is tried, and how long the wait between attempts may grow: about a
// minute in all, in which a server can be started again.
const (
	attempts = 20
	maxPause = 4 * time.Second
)

// retry does a request again, with exponential backoff and at least what the server asks
// for by Retry-After. All requests of a run are idempotent: a file that was stored already
// is unchanged the next time. An error of the file itself is not tried again.
func (l *loading) retry(ctx context.Context, do func() error) error {
	pause := l.client.Pause
	for n := 1; ; n++ {
		err := do()
		if err == nil || ctx.Err() != nil || loader.CodeOf(err) != "" || !webapi.Retryable(err) || n == attempts {
			return err
		}
		l.mu.Lock()
		if !l.unreachable {
			l.unreachable = true
			l.progress.Note(fmt.Sprintf("%v: trying again", err))
		}
		l.mu.Unlock()
		wait := pause
		if problem, ok := errors.AsType[*api.Problem](err); ok {
			wait = max(wait, problem.RetryAfter)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		pause = min(2*pause, maxPause)
	}
}

// prune removes the documents of directories if their file is gone.
func (l *loading) prune(ctx context.Context, sources []source) error {
	for _, id := range slices.Sorted(maps.Keys(l.heads)) {
		h := l.heads[id]
		match := func(s source) bool { return s.directory && s.origin == h.Origin }
		switch {
		case !slices.ContainsFunc(sources, match) || l.stays(rag.FileOf(h)):
			continue
		case l.o.Keep:
			l.report.Retained++
			continue
		}
		path := collectionPath(l.o.Collection) + "/documents/" + url.PathEscape(id)
		err := l.retry(ctx, func() error { return l.client.Call(ctx, http.MethodDelete, path, nil) })
		if err != nil && !webapi.IsNotFound(err) {
			return err
		}
		l.outcome(rag.Outcome{ID: id, Status: rag.OutcomeRemoved}, true)
	}
	return nil
}

// stays says whether a file is there, or lies in a folder of which that is not known.
func (l *loading) stays(file string) bool {
	if _, ok := l.live[file]; ok {
		return true
	}
	for ; file != "." && file != "/"; file = path.Dir(file) {
		if l.live[file] {
			return true
		}
	}
	return false
}

func (l *loading) outcome(o rag.Outcome, directory bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreachable = false
	l.report.add(o, directory)
	l.progress.Outcome(o)
}
