package weaviate_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fake answers as Weaviate 1.35 was seen to: the same refusals in the same words, and BM25 by the same formula. It takes
// nothing that the real one would not.
type fake struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	class   map[string]any
	tenants map[string]map[string]stored // objects by id
	before  func(w http.ResponseWriter, r *http.Request) bool
	lie     func(query string, found []scored) []scored
	calls   []string
}

type stored struct {
	Key, Document, Hash, Sum, Terms string
	Version, Passage, Length        int
}

type scored struct {
	stored
	score float64
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, tenants: map[string]map[string]stored{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

// set changes what the fake does while it serves.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// objects counts what is kept.
func (f *fake) objects() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, all := range f.tenants {
		n += len(all)
	}
	return n
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before != nil && before(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	assert.NoError(f.t, err)
	assert.Equal(f.t, "application/json", r.Header.Get("Content-Type"))
	call := r.Method + " " + r.URL.Path
	f.calls = append(f.calls, call)
	status, answer := http.StatusOK, any(nil)
	refuse := func(code int, message string) {
		status, answer = code, map[string]any{"error": []any{map[string]string{"message": message}}}
	}
	switch call {
	case "GET /v1/schema/Mneme":
		if f.class == nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		answer = f.class
	case "POST /v1/schema":
		if f.class != nil {
			refuse(http.StatusUnprocessableEntity, "class name Mneme already exists")
			break
		}
		assert.NoError(f.t, json.Unmarshal(body, &f.class))
		answer = f.class
	case "GET /v1/schema/Mneme/tenants":
		list := []map[string]string{}
		for name := range f.tenants {
			list = append(list, map[string]string{"name": name, "activityStatus": "HOT"})
		}
		answer = list
	case "POST /v1/schema/Mneme/tenants":
		var names []struct{ Name string }
		assert.NoError(f.t, json.Unmarshal(body, &names))
		if f.class == nil {
			refuse(http.StatusUnprocessableEntity, "updating schema: TYPE_ADD_TENANT: class not found")
			break
		}
		for _, n := range names {
			assert.Regexp(f.t, `^[A-Za-z0-9_-]{1,64}$`, n.Name)
			if f.tenants[n.Name] == nil {
				f.tenants[n.Name] = map[string]stored{}
			}
		}
		answer = names
	case "DELETE /v1/schema/Mneme/tenants":
		var names []string
		assert.NoError(f.t, json.Unmarshal(body, &names))
		for _, n := range names {
			delete(f.tenants, n)
		}
	case "POST /v1/batch/objects":
		answer = f.put(body)
	case "DELETE /v1/batch/objects":
		all := f.tenants[r.URL.Query().Get("tenant")]
		if all == nil {
			refuse(http.StatusUnprocessableEntity, fmt.Sprintf("batch delete objects: cannot find objects: tenant not found: %q",
				r.URL.Query().Get("tenant")))
			break
		}
		answer = f.remove(body, all)
	case "POST /v1/graphql":
		answer = f.graphql(body)
	default:
		assert.Fail(f.t, "no such route", call)
	}
	w.WriteHeader(status)
	assert.NoError(f.t, json.NewEncoder(w).Encode(answer))
}

func (f *fake) put(body []byte) any {
	var batch struct {
		Objects []struct {
			Class, Tenant, ID string
			Properties        stored
		}
	}
	assert.NoError(f.t, json.Unmarshal(body, &batch))
	answer := []any{}
	for _, o := range batch.Objects {
		assert.Equal(f.t, "Mneme", o.Class)
		assert.Regexp(f.t, `^[0-9a-f]{32}$`, o.ID)
		result := map[string]any{"status": "SUCCESS"}
		if all := f.tenants[o.Tenant]; all != nil {
			all[o.ID] = o.Properties
		} else {
			result = map[string]any{"status": "FAILED", "errors": map[string]any{"error": []any{
				map[string]string{"message": fmt.Sprintf("tenant not found: %q", o.Tenant)}}}}
		}
		answer = append(answer, map[string]any{"id": o.ID, "result": result})
	}
	return answer
}

// deleteLimit is how many objects one call deletes at most: less than 10,000, for tests.
const deleteLimit = 50

func (f *fake) remove(body []byte, all map[string]stored) any {
	type operand struct {
		Path      []string
		Operator  string
		ValueText string
		ValueInt  int
	}
	var what struct {
		Match struct {
			Class string
			Where struct {
				Operator string
				Operands []struct {
					Operator string
					Operands []operand
				}
			}
		}
	}
	assert.NoError(f.t, json.Unmarshal(body, &what))
	assert.Equal(f.t, "Or", what.Match.Where.Operator)
	n := 0
	for id, o := range all {
		for _, and := range what.Match.Where.Operands {
			assert.Equal(f.t, "And", and.Operator)
			key, version := and.Operands[0], and.Operands[1]
			assert.Equal(f.t, []string{"key Equal", "version LessThan"},
				[]string{key.Path[0] + " " + key.Operator, version.Path[0] + " " + version.Operator})
			if o.Key == key.ValueText && o.Version < version.ValueInt && n < deleteLimit {
				delete(all, id)
				n++
				break
			}
		}
	}
	return map[string]any{"results": map[string]any{"matches": n, "limit": deleteLimit, "successful": n, "failed": 0}}
}

var (
	wholeQuery = regexp.MustCompile(`^\{Get\{(.*?)\}` +
		`(?: Aggregate\{Mneme\(tenant:"([^"]*)"\)\{meta\{count\} length\{mean\}\}\})?\}$`)
	oneQuery = regexp.MustCompile(`^(\w+):Mneme\(tenant:"([^"]*)",limit:(\d+),bm25:\{query:("(?:[^"\\]|\\.)*"),` +
		`properties:\["terms"\]\}\)\{([\w {}]*)\} `)
)

func (f *fake) graphql(body []byte) any {
	var asked struct{ Query string }
	assert.NoError(f.t, json.Unmarshal(body, &asked))
	if f.class == nil {
		return map[string]any{"errors": []any{map[string]string{
			"message": `Cannot query field "Mneme" on type "GetObjectsObj".`}}}
	}
	parts := wholeQuery.FindStringSubmatch(asked.Query)
	if !assert.NotNil(f.t, parts, asked.Query) {
		return nil
	}
	get := map[string]any{}
	for rest := parts[1]; rest != ""; {
		one := oneQuery.FindStringSubmatch(rest)
		if !assert.NotNil(f.t, one, rest) {
			return nil
		}
		rest = rest[len(one[0]):]
		all, there := f.tenants[one[2]]
		if !there {
			return map[string]any{"data": map[string]any{"Get": map[string]any{one[1]: nil}}, "errors": []any{map[string]string{
				"message": fmt.Sprintf("explorer: get class: vector search: object search at index mneme: tenant not found: %q",
					one[2])}}}
		}
		limit, err := strconv.Atoi(one[3])
		assert.NoError(f.t, err)
		var query string
		assert.NoError(f.t, json.Unmarshal([]byte(one[4]), &query))
		found := bm25(all, strings.Fields(query))
		if f.lie != nil {
			found = f.lie(query, found)
		}
		list := []any{}
		for _, s := range found[:min(limit, len(found))] {
			list = append(list, map[string]any{"document": s.Document, "version": s.Version, "hash": s.Hash,
				"passage": s.Passage, "sum": s.Sum, "terms": s.Terms,
				"_additional": map[string]string{"score": fmt.Sprint(float32(s.score))}})
		}
		get[one[1]] = list
	}
	data := map[string]any{"Get": get}
	if parts[2] != "" {
		n, sum := len(f.tenants[parts[2]]), 0
		for _, o := range f.tenants[parts[2]] {
			sum += o.Length
		}
		data["Aggregate"] = map[string]any{"Mneme": []any{map[string]any{"meta": map[string]int{"count": n},
			"length": map[string]any{"mean": float64(sum) / float64(max(n, 1))}}}}
	}
	return map[string]any{"data": data}
}

// bm25 ranks objects, as Weaviate does: a term that a query repeats counts as often.
func bm25(all map[string]stored, query []string) []scored {
	frequency, total := map[string]float64{}, 0.0
	for _, o := range all {
		terms := strings.Fields(o.Terms)
		total += float64(len(terms))
		slices.Sort(terms)
		for _, t := range slices.Compact(terms) {
			frequency[t]++
		}
	}
	n, found := float64(len(all)), []scored{}
	for _, o := range all {
		times, length := map[string]float64{}, 0.0
		for t := range strings.FieldsSeq(o.Terms) {
			times[t]++
			length++
		}
		score := 0.0
		for _, t := range query {
			idf := math.Log(1 + (n-frequency[t]+0.5)/(frequency[t]+0.5))
			score += idf * times[t] / (times[t] + 1.2*(1-0.75+0.75*length/(total/n)))
		}
		if score > 0 {
			found = append(found, scored{o, score})
		}
	}
	slices.SortFunc(found, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.Document, b.Document), a.Passage-b.Passage)
	})
	return found
}
