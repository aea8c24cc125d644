// Package weaviate keeps the terms of passages in a cluster of Weaviate (1.35), an open-source search engine, and
// searches them there: it is a rag.Searcher. It speaks plain HTTP: six calls of REST and GraphQL need no client library.
//
// All passages are objects of one class with multi-tenancy: each shard of a Searcher is a tenant of the class, which
// Weaviate keeps in files of its own, and the objects of one tenant are in no answer about another. The field that is
// searched holds our terms with blanks between them, is tokenised at blanks and has no stopwords, and BM25 has our
// parameters. So its ranking is that of package textindex over the same passages.
package weaviate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"mneme/memory/textindex"
	"mneme/subagent/rag"
)

// Config says where the cluster is.
type Config struct {
	URLs []string // of its nodes, such as http://10.0.0.1:8080; when one fails the next is asked
	Key  string   // of the API; "" for none
	// Class is the name of the class, a capital letter first. Two installations that share a cluster need one each.
	Class string
	// Replicas is how many nodes have each shard. It counts when the class is made; 0 for as many as there are URLs.
	Replicas int
	HTTP     *http.Client
}

// The time that one node has to answer a question, and to take a batch.
const (
	askTime  = 5 * time.Second
	feedTime = time.Minute
)

// Bounds of a request: objects of a batch, documents of a deletion.
const (
	batchObjects = 256
	batchGone    = 64
)

// keepStatistics is how long frequencies are kept that were asked for, keptTerms how many.
const (
	keepStatistics = time.Minute
	keptTerms      = 200_000
)

// Engine is a cluster. Safe for concurrent use.
type Engine struct {
	c    Config
	node atomic.Int64 // the number of the one that answered last

	mu    sync.Mutex
	cache map[string]measured // by shard and term, the shard alone for its passages; guarded by mu
}

// measured is a frequency, with the mean length if it is that of all passages.
type measured struct {
	count     int
	length    float64
	timestamp time.Time
}

// New makes an Engine, which asks nothing before it is used.
func New(c Config) *Engine {
	c.Replicas = cmp.Or(c.Replicas, len(c.URLs))
	c.HTTP = cmp.Or(c.HTTP, http.DefaultClient)
	return &Engine{c: c, cache: map[string]measured{}}
}

// Identity is a random text in the description of the class, which is made if it is not there.
func (e *Engine) Identity(ctx context.Context) (string, error) {
	path := "/v1/schema/" + e.c.Class
	class, err := e.call(ctx, askTime, http.MethodGet, path, nil)
	if errors.Is(err, errMissing) {
		// Of two processes that make it at once one is refused, and both read what the other made.
		_, _ = e.call(ctx, feedTime, http.MethodPost, "/v1/schema", e.class())
		class, err = e.call(ctx, askTime, http.MethodGet, path, nil)
	}
	identity := class.Get("description").String()
	switch {
	case err != nil:
		return "", err
	case !strings.HasPrefix(identity, descriptionPrefix):
		return "", fmt.Errorf("%w: mneme did not make its class %s: delete that, or name another class", rag.ErrEngineAway,
			e.c.Class)
	case class.Get("invertedIndexConfig.usingBlockMaxWAND").Bool():
		// Before github.com/weaviate/weaviate/pull/11780 it leaves out the best of what was put in the last minute.
		return "", fmt.Errorf("%w: it would leave out passages: set USE_INVERTED_SEARCHABLE=false on its nodes and delete "+
			"the class %s", rag.ErrEngineAway, e.c.Class)
	}
	return identity, nil
}

// made begins the description of a class of ours. A batch for a class that is not there may have Weaviate make one
// (AUTOSCHEMA_ENABLED), which has none.
const descriptionPrefix = "mneme "

type object = map[string]any

// class is what is kept of a passage. key, a hash of document, is for filters, which would trim blanks; the mean of
// length, the number of terms, is read from its index.
func (e *Engine) class() json.RawMessage {
	return fmt.Appendf(nil, `{"class": %q, "description": %q, "vectorizer": "none", "vectorIndexConfig": {"skip": true},
		"multiTenancyConfig": {"enabled": true}, "replicationConfig": {"factor": %d, "asyncEnabled": %t},
		"invertedIndexConfig": {"bm25": {"k1": %g, "b": %g}, "stopwords": {"preset": "none"}}, "properties": [
		{"name": "key", "dataType": ["text"], "tokenization": "field", "indexFilterable": true, "indexSearchable": false},
		{"name": "document", "dataType": ["text"], "indexFilterable": false, "indexSearchable": false},
		{"name": "version", "dataType": ["int"], "indexFilterable": true},
		{"name": "hash", "dataType": ["text"], "indexFilterable": false, "indexSearchable": false},
		{"name": "passage", "dataType": ["int"], "indexFilterable": false},
		{"name": "sum", "dataType": ["text"], "indexFilterable": false, "indexSearchable": false},
		{"name": "terms", "dataType": ["text"], "tokenization": "whitespace", "indexFilterable": false,
			"indexSearchable": true},
		{"name": "length", "dataType": ["int"], "indexFilterable": true}]}`, e.c.Class, descriptionPrefix+strings.ToLower(rand.Text()),
		e.c.Replicas, e.c.Replicas > 1, textindex.K1, textindex.B)
}

// key stands for a document in filters.
func key(document string) string {
	sum := sha256.Sum256([]byte(document))
	return hex.EncodeToString(sum[:16])
}

// Make makes a shard, unless there is one.
func (e *Engine) Make(ctx context.Context, shard string) error {
	_, err := e.call(ctx, feedTime, http.MethodPost, e.shards(), []object{{"name": shard}})
	return err
}

func (e *Engine) shards() string { return "/v1/schema/" + e.c.Class + "/tenants" }

// Shards are the names of all shards.
func (e *Engine) Shards(ctx context.Context) ([]string, error) {
	list, err := e.call(ctx, feedTime, http.MethodGet, e.shards(), nil)
	var names []string
	for _, name := range list.Get("#.name").Array() {
		names = append(names, name.String())
	}
	return names, err
}

// Drop removes shards with all that is in them.
func (e *Engine) Drop(ctx context.Context, shards ...string) error {
	_, err := e.call(ctx, feedTime, http.MethodDelete, e.shards(), shards)
	return err
}

// Put puts entries. Their ids are made of what they are, so that putting one again changes nothing.
func (e *Engine) Put(ctx context.Context, shard string, entries []rag.Entry) error {
	for batch := range slices.Chunk(entries, batchObjects) {
		objects := make([]object, len(batch))
		for i, n := range batch {
			id := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s\x00%d", n.Document, n.Version, n.Hash, n.Passage))
			objects[i] = object{"class": e.c.Class, "tenant": shard, "id": hex.EncodeToString(id[:16]), "properties": object{
				"key": key(n.Document), "document": n.Document, "version": n.Version, "hash": n.Hash, "passage": n.Passage,
				"sum": n.Sum, "terms": strings.Join(n.Terms, " "), "length": len(n.Terms)}}
		}
		response, err := e.call(ctx, feedTime, http.MethodPost, "/v1/batch/objects", object{"objects": objects})
		results := response.Get("#.result").Array()
		if err == nil && len(results) != len(batch) {
			err = fmt.Errorf("%w: it answered for %d of %d passages", rag.ErrEngineAway, len(results), len(batch))
		}
		for _, result := range results {
			if err == nil && result.Get("status").String() != "SUCCESS" {
				err = failure(result.Get("errors").Raw)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Delete removes the entries of documents that are of lesser versions.
func (e *Engine) Delete(ctx context.Context, shard string, deletions []rag.Deletion) error {
	for batch := range slices.Chunk(deletions, batchGone) {
		operands := make([]object, len(batch))
		for i, g := range batch {
			operands[i] = object{"operator": "And", "operands": []object{
				{"path": []string{"key"}, "operator": "Equal", "valueText": key(g.Document)},
				{"path": []string{"version"}, "operator": "LessThan", "valueInt": g.BelowVersion}}}
		}
		what := object{"match": object{"class": e.c.Class, "where": object{"operator": "Or", "operands": operands}}}
		for hasMore := true; hasMore; { // one call deletes a limited number
			done, err := e.call(ctx, feedTime, http.MethodDelete, "/v1/batch/objects?tenant="+url.QueryEscape(shard), what)
			if failed := done.Get("results.failed").Int(); err == nil && failed > 0 {
				err = fmt.Errorf("%w: it could not delete %d passages", rag.ErrEngineAway, failed)
			}
			if err != nil {
				return err
			}
			limit := done.Get("results.limit").Int()
			hasMore = limit > 0 && done.Get("results.matches").Int() >= limit
		}
	}
	return nil
}

// Search asks for the passages of each query and, in the same request, for the frequencies of their terms.
func (e *Engine) Search(ctx context.Context, shard string, queries [][]string, limit int) (rag.Candidates, error) {
	var ask strings.Builder
	get := func(alias string, n int, terms []string, fields string) {
		query, _ := json.Marshal(strings.Join(terms, " ")) // a string encodes
		fmt.Fprintf(&ask, "%s:%s(tenant:%q,limit:%d,bm25:{query:%s,properties:[\"terms\"]}){%s} ", alias, e.c.Class, shard, n,
			query, fields)
	}
	st, missing := e.cachedStatistics(shard, queries)
	for i, terms := range queries {
		if len(terms) > 0 {
			get("q"+strconv.Itoa(i), limit, terms, "document version hash passage sum terms")
		}
	}
	for i, term := range missing {
		get("t"+strconv.Itoa(i), 1, []string{term}, "terms _additional{score}")
	}
	if ask.Len() == 0 {
		return rag.Candidates{Statistics: st}, nil
	}
	request := "{Get{" + ask.String() + "}"
	if st.Passages < 0 {
		request += fmt.Sprintf(" Aggregate{%s(tenant:%q){meta{count} length{mean}}}", e.c.Class, shard)
	}
	answer, err := e.call(ctx, askTime, http.MethodPost, "/v1/graphql", object{"query": request + "}"})
	if err == nil && (answer.Get("errors.0").Exists() || !answer.Get("data.Get").IsObject()) {
		err = failure(answer.Get("errors").Raw)
	}
	if err != nil {
		return rag.Candidates{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.cache) > keptTerms {
		clear(e.cache)
	}
	if aggregate := answer.Get("data.Aggregate." + e.c.Class + ".0"); aggregate.Exists() {
		st.Passages, st.Length = int(aggregate.Get("meta.count").Int()), aggregate.Get("length.mean").Float()
		e.cache[shard] = measured{st.Passages, st.Length, time.Now()}
	}
	for i, term := range missing {
		st.Frequency[term] = frequency(answer.Get("data.Get.t"+strconv.Itoa(i)+".0"), term, st)
		e.cache[shard+" "+term] = measured{count: st.Frequency[term], timestamp: time.Now()}
	}
	candidates := rag.Candidates{Statistics: st}
	for i := range queries {
		list := answer.Get("data.Get.q" + strconv.Itoa(i)).Array()
		candidates.HasMore = candidates.HasMore || len(list) >= limit
		for _, h := range list {
			candidates.Entries = append(candidates.Entries, rag.Entry{Document: h.Get("document").String(),
				Version: h.Get("version").Int(), Hash: h.Get("hash").String(), Passage: int(h.Get("passage").Int()),
				Sum:   h.Get("sum").String(),
				Terms: strings.Fields(h.Get("terms").String())})
		}
	}
	return candidates, nil
}

// cachedStatistics are the statistics that are kept, with -1 passages if these are not, and the terms that they lack.
func (e *Engine) cachedStatistics(shard string, queries [][]string) (st textindex.Statistics, missing []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	st = textindex.Statistics{Passages: -1, Frequency: map[string]int{}}
	if total, ok := e.cache[shard]; ok && time.Since(total.timestamp) < keepStatistics {
		st.Passages, st.Length = total.count, total.length
	}
	for _, term := range slices.Concat(queries...) {
		if _, ok := st.Frequency[term]; ok {
			continue
		}
		one, ok := e.cache[shard+" "+term]
		if !ok || time.Since(one.timestamp) >= keepStatistics {
			missing = append(missing, term)
		}
		st.Frequency[term] = one.count
	}
	return st, missing
}

// frequency is how many passages have a term, read off the score of the best passage for it alone. That is the term's
// idf times what its number of times in a passage of this length makes of it, and the idf is a function of the frequency
// (see textindex). Counting by a filter takes 40 µs for each passage that has the term: seconds for common terms.
func frequency(best gjson.Result, term string, st textindex.Statistics) int {
	if !best.Exists() || st.Length <= 0 {
		return 0
	}
	times, length := 0.0, 0.0
	for t := range strings.FieldsSeq(best.Get("terms").String()) {
		length++
		if t == term {
			times++
		}
	}
	discount := textindex.K1 * (1 - textindex.B + textindex.B*length/st.Length)
	idf := best.Get("_additional.score").Float() * (times + discount) / times
	count := math.Round(float64(st.Passages+1)/math.Exp(idf) - 0.5)
	if !(count >= 1) { // also NaN
		return 1
	}
	return min(int(min(count, math.MaxInt32)), max(st.Passages, 1))
}

// errMissing: a node says that there is no such thing.
var errMissing = errors.New("it is not there")

// failure is what an answer's message means. A class or tenant that is not there is a shard that has to be filled again.
func failure(message string) error {
	if strings.Contains(message, "tenant not found") || strings.Contains(message, "Cannot query field") {
		return fmt.Errorf("%w: %.300s", rag.ErrNoShard, message)
	}
	return fmt.Errorf("%w: %.300s", rag.ErrEngineAway, message)
}

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 256 << 20

// call makes a request of the first node that answers it, from that on which did last.
func (e *Engine) call(ctx context.Context, limit time.Duration, method, path string, body any) (answer gjson.Result,
	err error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	first := e.node.Load()
	for i := range int64(len(e.c.URLs)) {
		var retry bool
		answer, retry, err = e.ask(ctx, limit, e.c.URLs[(first+i)%int64(len(e.c.URLs))], method, path, encoded)
		if !retry || ctx.Err() != nil {
			break
		}
		e.node.Store((first + i + 1) % int64(len(e.c.URLs)))
	}
	return answer, err
}

// ask makes a request of one node; again says whether another may answer it.
func (e *Engine) ask(ctx context.Context, limit time.Duration, node, method, path string, body []byte) (
	parsed gjson.Result, retry bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(bounded, method, strings.TrimRight(node, "/")+path, bytes.NewReader(body))
	if err != nil {
		return parsed, false, err
	}
	r.Header.Set("Content-Type", "application/json")
	if e.c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+e.c.Key)
	}
	answer, err := e.c.HTTP.Do(r)
	if err != nil {
		return parsed, true, fmt.Errorf("%w: %w", rag.ErrEngineAway, err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case err != nil:
		return parsed, true, fmt.Errorf("%w: %w", rag.ErrEngineAway, err)
	case answer.StatusCode == http.StatusNotFound:
		return parsed, false, fmt.Errorf("%w: %w", rag.ErrEngineAway, errMissing)
	case answer.StatusCode >= http.StatusBadRequest && bytes.Contains(raw, []byte("tenant not found")):
		return parsed, false, failure(string(raw))
	case answer.StatusCode >= http.StatusBadRequest:
		return parsed, answer.StatusCode >= http.StatusInternalServerError,
			fmt.Errorf("%w: it answers %s: %.300s", rag.ErrEngineAway, answer.Status, raw)
	case len(raw) > 0 && !gjson.ValidBytes(raw):
		return parsed, true, fmt.Errorf("%w: it does not answer JSON", rag.ErrEngineAway)
	}
	return gjson.ParseBytes(raw), false, nil
}
