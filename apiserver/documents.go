package apiserver

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// documentsPage is how many documents one answer lists if nothing is said.
const documentsPage = 100

// putsAtOnce is how many requests put documents at one time. Each takes several times its size, and a processor; half of
// these are left to the runs.
var putsAtOnce = min(4, max(2, runtime.GOMAXPROCS(0)/2))

// putPatience is how long a request waits for its turn to put documents.
const putPatience = 5 * time.Minute

var (
	errNoDocuments = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: "documents_off",
		Message: "This apiserver keeps no documents, as it has no Redis: set redis.url.",
	}
	errDocumentsAway = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: "documents_unavailable", Retryable: true, RetryAfter: 2 * time.Second,
		Message: "The documents cannot be reached right now, or too many are being read; please try again.",
	}
	errStarting = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: "starting", Retryable: true, RetryAfter: time.Second,
		Message: "The documents are being read; please wait a moment.",
	}
	errNoCollection = &api.Problem{
		Status: http.StatusNotFound, Code: "unknown_collection",
		Message: "There is no collection of this name; PUT /v1/collections/{name} makes it, and so does mneme ingest.",
	}
	errNoDocument = &api.Problem{
		Status: http.StatusNotFound, Code: "unknown_document", Message: "The collection has no document with this id.",
	}
	errCutBody = &api.Problem{
		Status: http.StatusBadRequest, Code: "bad_request", Retryable: true,
		Message: "The body ended before it was complete; send it again.",
	}
)

// documents serves the collections of a library.
type documents struct {
	library   *rag.Library // nil for none
	subagents func() []api.SubagentInfo
	limit     int64 // of a body or a line, in bytes
	puts      *fair.Places
}

// readers are the subagents that search each collection.
func (d *documents) readers() map[string][]memory.Agent {
	readers := map[string][]memory.Agent{}
	for _, s := range d.subagents() {
		for _, name := range s.Collections {
			readers[name] = append(readers[name], s.Name)
		}
	}
	return readers
}

// ready says whether all collections can be searched at once.
func (d *documents) ready() bool { return d.library == nil || d.library.Ready() }

// lag is how far the documents are behind the store; nil if they are not.
func (d *documents) lag() *documentsLag {
	if d.library == nil {
		return nil
	}
	lag := d.library.Lag()
	if lag.Changes == 0 {
		return nil
	}
	return &documentsLag{Changes: lag.Changes, Seconds: math.Round(lag.For.Seconds()*10) / 10}
}

// routes are those of collections by name, and of the documents of a chat.
func (d *documents) routes(g *telemetry.Edge) {
	on := func(h func(*gin.Context, docstore.Collection) error) gin.HandlerFunc {
		return g.Answered(func(c *gin.Context) error {
			if d.library == nil {
				return errNoDocuments
			}
			collection, err := collectionOf(c)
			if err == nil {
				err = h(c, collection)
			}
			return problemOf(err)
		})
	}
	g.GET("/v1/collections", g.Answered(d.list))
	g.PUT("/v1/collections/:collection", on(d.create))
	g.GET("/v1/collections/:collection", on(d.describe))
	g.DELETE("/v1/collections/:collection", on(d.drop))
	g.POST("/v1/collections/:collection/search", on(d.search))
	for _, route := range []string{"/v1/collections/:collection/documents", "/v1/chats/:chat/documents"} {
		g.GET(route, on(d.page))
		g.POST(route, on(d.putLines))
		g.PUT(route+"/*id", on(d.put))
		g.GET(route+"/*id", on(d.get))
		g.DELETE(route+"/*id", on(d.delete))
	}
}

// collectionOf is what the path names.
func collectionOf(c *gin.Context) (docstore.Collection, error) {
	if id, ok := c.Params.Get("chat"); ok {
		chat, err := tenantOf(c).Chat(id)
		if err != nil {
			return docstore.Collection{}, api.BadRequest(err)
		}
		return docstore.OfChat(chat)
	}
	return docstore.NamedCollection(tenantOf(c), c.Param("collection"))
}

// idOf is a document's id in the path; it may hold slashes.
func idOf(c *gin.Context) (string, error) {
	id := strings.TrimPrefix(c.Param("id"), "/")
	return id, docstore.CheckID(id)
}

// problemOf makes the answer of an error of the library.
func problemOf(err error) error {
	var refused *docstore.Error
	var unread *loader.Error
	var sizeErr *http.MaxBytesError
	var denied *memory.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, docstore.ErrNoCollection):
		return errNoCollection
	case errors.Is(err, docstore.ErrNoDocument):
		return errNoDocument
	case errors.As(err, &denied):
		return api.ProblemOf(event.Fail("memory_refused", "Redis refuses "+denied.What+". "+denied.Fix, 0))
	case errors.Is(err, docstore.ErrUnavailable), errors.Is(err, fair.ErrFull):
		return errDocumentsAway
	case errors.As(err, &refused):
		return problem(http.StatusBadRequest, string(refused.Code), refused.Sentence)
	case errors.As(err, &unread):
		return problem(http.StatusUnprocessableEntity, string(unread.Code), unread.Sentence)
	case errors.Is(err, rag.ErrBadQuery):
		return badRequest(strings.TrimPrefix(err.Error(), rag.ErrBadQuery.Error()+": "))
	case errors.As(err, &sizeErr):
		return problem(http.StatusRequestEntityTooLarge, "too_large", "the body is larger than "+
			strconv.FormatInt(sizeErr.Limit, 10)+" bytes")
	case errors.Is(err, context.Canceled):
		return errCutBody // the client has left
	}
	return err
}

// statusOf are the codes that have a status of their own.
var statusOf = map[string]int{
	string(docstore.TooLarge):  http.StatusRequestEntityTooLarge,
	string(loader.Unsupported): http.StatusUnsupportedMediaType,
	string(docstore.Conflict):  http.StatusConflict,
}

func problem(status int, code, sentence string) *api.Problem {
	if special, ok := statusOf[code]; ok {
		status = special
	}
	if sentence == "" {
		sentence = "it was refused"
	}
	return &api.Problem{Status: status, Code: code, Message: strings.ToUpper(sentence[:1]) + sentence[1:] + "."}
}

func badRequest(sentence string) *api.Problem {
	return problem(http.StatusBadRequest, "bad_request", sentence)
}

type collectionList struct {
	Collections []docstore.Info `json:"collections"`
}

// list is GET /v1/collections.
func (d *documents) list(c *gin.Context) error {
	if d.library == nil {
		return errNoDocuments
	}
	infos, err := d.library.Collections(c.Request.Context(), tenantOf(c))
	if err != nil {
		return problemOf(err)
	}
	return api.Answer(c.Writer, http.StatusOK, collectionList{append([]docstore.Info{}, infos...)}, nil)
}

// create is PUT /v1/collections/{c}.
func (d *documents) create(c *gin.Context, collection docstore.Collection) error {
	created, err := d.library.Create(c.Request.Context(), collection)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return d.inform(c, collection, status)
}

// describe is GET /v1/collections/{c}.
func (d *documents) describe(c *gin.Context, collection docstore.Collection) error {
	return d.inform(c, collection, http.StatusOK)
}

// description is a collection, and the subagents that search it.
type description struct {
	docstore.Info
	ReadBy   []memory.Agent `json:"read_by"`
	Searched []string       `json:"searched"` // all collections that subagents search, by name
	Reads    []string       `json:"reads"`    // extensions of the files that can be put
}

func (d *documents) inform(c *gin.Context, collection docstore.Collection, status int) error {
	info, err := d.library.Info(c.Request.Context(), collection)
	if err != nil {
		return err
	}
	readers := d.readers()
	searched := append([]string{}, slices.Sorted(maps.Keys(readers))...)
	return api.Answer(c.Writer, status, description{info, append([]memory.Agent{}, readers[info.Name]...), searched,
		d.library.Loader().Extensions()}, nil)
}

// drop is DELETE /v1/collections/{c}.
func (d *documents) drop(c *gin.Context, collection docstore.Collection) error {
	dropped, err := d.library.Drop(c.Request.Context(), collection)
	if err == nil && !dropped {
		err = docstore.ErrNoCollection
	}
	return api.Answer(c.Writer, http.StatusNoContent, nil, err)
}

// dropChat removes the documents of a chat, and says whether there were any.
func (d *documents) dropChat(ctx context.Context, chat memory.Chat) (dropped bool, err error) {
	if d.library == nil {
		return false, nil
	}
	collection, err := docstore.OfChat(chat)
	if err == nil {
		dropped, err = d.library.Drop(ctx, collection)
	}
	return dropped, problemOf(err)
}

// search is POST /v1/collections/{c}/search.
func (d *documents) search(c *gin.Context, collection docstore.Collection) error {
	var body api.SearchRequest
	if err := api.DecodeBody(c.Writer, c.Request, 1<<20, &body); err != nil {
		return err
	}
	r := rag.Request{Collections: []docstore.Collection{collection}, Query: body.Query, K: rag.DefaultK}
	if body.K != nil {
		if r.K = *body.K; r.K < 1 || r.K > rag.MaxK {
			return badRequest("k is a whole number from 1 to " + strconv.Itoa(rag.MaxK))
		}
	}
	for _, m := range body.History {
		if m.Role != memory.RoleUser && m.Role != memory.RoleAssistant {
			return badRequest("a role in history is user or assistant, not " +
				strconv.Quote(m.Role))
		}
		r.History = append(r.History, memory.Message{Role: m.Role, Content: m.Content})
	}
	if len(body.Where) > 0 {
		var err error
		if r.Where, err = rag.ParseWhere(body.Where); err != nil {
			return err
		}
	}
	results, err := d.library.Search(c.Request.Context(), r)
	return api.Answer(c.Writer, http.StatusOK, results, err)
}

type documentPage struct {
	Documents  []docstore.Head `json:"documents"`
	NextCursor string          `json:"next_cursor"` // "" at the end
}

// page is GET …/documents. A chat without documents has none, and no collection.
func (d *documents) page(c *gin.Context, collection docstore.Collection) error {
	limit := documentsPage
	if text := c.Query("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > docstore.MaxPage {
			return badRequest("limit is a whole number from 1 to " +
				strconv.Itoa(docstore.MaxPage))
		}
		limit = n
	}
	heads, next, err := d.library.List(c.Request.Context(), collection, c.Query("cursor"), limit)
	if err != nil && (collection.Chat().IsZero() || !errors.Is(err, docstore.ErrNoCollection)) {
		return err
	}
	return api.Answer(c.Writer, http.StatusOK, documentPage{append([]docstore.Head{}, heads...), next}, nil)
}

// get is GET …/documents/{id}.
func (d *documents) get(c *gin.Context, collection docstore.Collection) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	document, err := d.library.Get(c.Request.Context(), collection, id)
	if err == nil {
		api.WriteJSON(c.Writer, http.StatusOK, document)
	} else if !collection.Chat().IsZero() && errors.Is(err, docstore.ErrNoCollection) {
		err = docstore.ErrNoDocument
	}
	return err
}

// delete is DELETE …/documents/{id}.
func (d *documents) delete(c *gin.Context, collection docstore.Collection) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	removed, err := d.library.Delete(c.Request.Context(), collection, id)
	switch {
	case err == nil && removed == 0, !collection.Chat().IsZero() && errors.Is(err, docstore.ErrNoCollection):
		return docstore.ErrNoDocument
	case err == nil:
		c.Status(http.StatusNoContent)
	}
	return err
}
