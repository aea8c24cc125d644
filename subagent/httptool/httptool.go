// Package httptool is a REST call as a tool: an external.Caller made of a few lines of configuration. It owns its
// connections. The scheme, the host and the user in its address are the operator's; arguments fill segments of the
// path, values of the query and a JSON body, and never anything else. It never follows a redirect or asks a proxy.
package httptool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/tidwall/gjson"
	"golang.org/x/net/html/charset"
	"golang.org/x/net/http/httpguts"

	"mneme/memory"
	"mneme/memory/secrets"
	"mneme/memory/telemetry"
	"mneme/subagent/external"
)

// Config is one REST call.
type Config struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema of an object; empty for no arguments
	Method      string          // empty: GET, or POST with a Body
	URL         string          // with {name} in its path and its query
	Query       map[string]string
	Headers     map[string]string
	Body        json.RawMessage // a string "{name}" in it becomes the argument of any type; empty for none
	Secrets     []string        // values of Headers that no answer may show
	Response    string          // gjson path of what is kept of an answer in JSON; empty for all
}

// Error is a value of a Config that cannot be used.
type Error struct {
	Field   string // its name in the configuration: "url"
	Problem string
}

func (e *Error) Error() string { return e.Field + ": " + e.Problem }

func bad(field, format string, args ...any) error {
	return &Error{field, fmt.Sprintf(format, args...)}
}

// Bounds of an answer, in bytes.
const (
	maxFailure  = 2 << 10 // that is shown of one that says that it failed
	maxSearched = 4 << 20 // in which Config.Response is looked for
)

// Methods that a call may have.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// Call makes the requests of one tool. Safe for concurrent use.
type Call struct {
	config   Config
	client   *http.Client
	origin   string // scheme and host
	segments []string
	query    url.Values
	body     any
	declared map[string]json.RawMessage
	rest     []string // parameters that stand nowhere else
	open     bool     // the schema allows others, too
	secrets  *secrets.Set
}

// NewClient is one for Calls: no redirect is followed, no proxy of the environment asked.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
			TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		},
		CheckRedirect: telemetry.NoRedirect,
	}
}

// New checks a configuration; errors are an *Error. The client is one of NewClient.
func New(c Config, client *http.Client) (*Call, error) {
	call := &Call{config: c, client: client, secrets: secrets.New(c.Secrets...)}
	if c.Method == "" {
		call.config.Method = http.MethodGet
		if len(c.Body) > 0 {
			call.config.Method = http.MethodPost
		}
	}
	call.config.Method = strings.ToUpper(call.config.Method)
	if !slices.Contains(methods, call.config.Method) {
		return nil, bad("method", "%q is none of: %s", c.Method, strings.Join(methods, ", "))
	}
	if len(c.Body) > 0 {
		if !call.writes() {
			return nil, bad("body", "a %s has none; remove it, or set method to POST, PUT or PATCH", call.config.Method)
		}
		if err := json.Unmarshal(c.Body, &call.body); err != nil {
			return nil, bad("body", "JSON is needed: %v", err)
		}
	}
	if err := external.CheckSchema(c.Parameters); err != nil {
		return nil, bad("parameters", "a JSON schema of an object is needed: %v", err)
	}
	if err := call.readURL(); err != nil {
		return nil, err
	}
	for key, value := range c.Query {
		call.query.Add(key, value)
	}
	for name, value := range c.Headers {
		if err := checkHeader(name, value); err != nil {
			return nil, err
		}
	}
	return call, call.readParameters()
}

// writes says whether the method has a body.
func (c *Call) writes() bool {
	return slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, c.config.Method)
}

// Repeatable says whether a call does no harm when it is made twice.
func (c *Call) Repeatable() bool {
	return c.config.Method == http.MethodGet || c.config.Method == http.MethodHead
}

// Definition presents the call as a tool.
func (c *Call) Definition() external.Definition {
	request, _ := json.Marshal([]any{c.config.Method, c.config.URL, c.config.Query, c.body}) // these cannot fail
	return external.Definition{
		Server: external.HTTP, Name: c.config.Name, Description: c.config.Description, Parameters: c.config.Parameters,
		Request: string(request),
	}
}

// readURL takes the address apart.
func (c *Call) readURL() error {
	const need = "an address such as https://api.example.com/v1/orders/{order} is needed"
	scheme, rest, ok := strings.Cut(c.config.URL, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return bad("url", need)
	}
	host, path := rest, ""
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host, path = rest[:end], rest[end:]
	}
	base, err := url.Parse(scheme + "://" + host)
	switch {
	case strings.ContainsAny(host, "{}"):
		return bad("url", "arguments may fill segments of the path and values of the query, never the host; "+
			"write the host out")
	case strings.Contains(host, "@"):
		return bad("url", "a user or a password does not belong in it; name the variable of the header Authorization "+
			"in headers_env")
	case err != nil || base.Hostname() == "" || strings.Contains(path, "#"):
		return bad("url", need)
	}
	c.origin = scheme + "://" + host
	path, rawQuery, _ := strings.Cut(path, "?")
	for _, s := range strings.Split(path, "/") {
		plain := placeholder.ReplaceAllString(s, "x")
		decoded, err := url.PathUnescape(plain)
		if err != nil || strings.ContainsAny(plain, "{} \\") || decoded == "." || decoded == ".." {
			return bad("url", "the path is not valid at %q; a placeholder is {name}, of letters, digits, _ . - and $", s)
		}
		c.segments = append(c.segments, s)
	}
	if c.query, err = url.ParseQuery(rawQuery); err != nil {
		return bad("url", "the query is not valid; write it as query: {name: value}")
	}
	for key := range c.query {
		if len(names(key)) > 0 {
			return bad("url", "arguments may be values of the query, not names; write the name of %q out", key)
		}
	}
	return nil
}

// forbidden are headers that a request makes itself.
var forbidden = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Accept-Encoding",
	"Traceparent",
}

func checkHeader(name, value string) error {
	switch own := http.CanonicalHeaderKey(name); {
	case !httpguts.ValidHeaderFieldName(name):
		return bad("headers", "%q is no name of a header", name)
	case slices.Contains(forbidden, own) || strings.HasPrefix(own, "Mneme-"):
		return bad("headers", "%s is set by the service itself; remove it", name)
	case !httpguts.ValidHeaderFieldValue(value):
		return bad("headers", "the value of %s holds a line break or another character that no header may hold", name)
	}
	return nil
}

// readParameters sees that each parameter goes somewhere and each placeholder has one.
func (c *Call) readParameters() error {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional json.RawMessage            `json:"additionalProperties"`
	}
	if len(bytes.TrimSpace(c.config.Parameters)) > 0 {
		if err := json.Unmarshal(c.config.Parameters, &schema); err != nil {
			return bad("parameters", "a JSON schema of an object is needed: %v", err)
		}
	}
	c.declared = schema.Properties
	c.open = len(schema.Additional) > 0 && string(schema.Additional) != "false"
	used := map[string]bool{}
	check := func(field string, params []string) error {
		for _, name := range params {
			if _, ok := schema.Properties[name]; !ok {
				return bad(field, "there is no parameter %q for {%s}; add it to parameters.properties", name, name)
			}
			used[name] = true
		}
		return nil
	}
	var inQuery []string
	for _, values := range c.query {
		inQuery = append(inQuery, names(strings.Join(values, " "))...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.config.Query)) {
		if len(names(name)) > 0 {
			return bad("query", "arguments may be values of the query, not names; write the name of %q out", name)
		}
	}
	err := cmp.Or(check("url", names(strings.Join(c.segments, "/"))), check("query", inQuery),
		check("body", bodyNames(c.body)))
	if err != nil {
		return err
	}
	for name := range schema.Properties {
		if !used[name] {
			c.rest = append(c.rest, name)
		}
	}
	slices.Sort(c.rest)
	if c.body != nil && len(c.rest) > 0 {
		return bad("parameters", "%s goes nowhere; write {%s} into url, query or body", c.rest[0], c.rest[0])
	}
	return nil
}

// Call makes the request.
func (c *Call) Call(ctx context.Context, call external.Call) (external.Returned, error) {
	request, err := c.request(ctx, call)
	if err != nil {
		return external.Returned{}, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return external.Returned{}, c.unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }() // nothing is lost with what was not read
	limit := memory.MaxToolResult
	if c.config.Response != "" {
		limit = maxSearched
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	if err != nil {
		return external.Returned{}, c.unreachable(ctx, err)
	}
	text := c.secrets.Text(bodyText(raw, response))
	switch {
	case response.StatusCode >= 400:
		return external.Returned{Text: fmt.Sprintf("the answer is %s\n%s", status(response), first(text)), Failed: true}, nil
	case response.StatusCode >= 300:
		return external.Returned{Text: fmt.Sprintf("the answer is %s: it leads elsewhere, which is not followed",
			status(response)), Failed: true}, nil
	case len(raw) == 0:
		return external.Returned{Text: fmt.Sprintf("(%s; the answer is empty)", status(response))}, nil
	case c.config.Response == "":
		return external.Returned{Text: text}, nil
	case len(raw) > limit:
		return external.Returned{Text: fmt.Sprintf("the answer has more than %d bytes, in which %s cannot be looked for",
			limit, c.config.Response), Failed: true}, nil
	case !gjson.ValidBytes(raw):
		return external.Returned{Text: text}, nil
	}
	value := gjson.Parse(c.secrets.Text(string(raw))).Get(c.config.Response)
	if !value.Exists() {
		text = fmt.Sprintf("(the answer holds nothing at %s)\n%s", c.config.Response, first(text))
		return external.Returned{Text: text}, nil
	}
	return external.Returned{Text: value.String()}, nil
}

// status is that of an answer in the words of the standard; those of the answer are a stranger's.
func status(r *http.Response) string {
	return strings.TrimSpace(fmt.Sprint(r.StatusCode, " ", http.StatusText(r.StatusCode)))
}

// first is the beginning of a text.
func first(text string) string {
	if len(text) <= maxFailure {
		return text
	}
	return strings.ToValidUTF8(text[:maxFailure], "") + "…"
}

// request is a call with its arguments.
func (c *Call) request(ctx context.Context, call external.Call) (*http.Request, error) {
	arguments := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(call.Arguments))
	d.UseNumber()
	if err := d.Decode(&arguments); err != nil {
		return nil, errors.New("the arguments are no JSON object")
	}
	path := make([]string, len(c.segments))
	for i, s := range c.segments {
		var err error
		if path[i], err = segment(s, arguments); err != nil {
			return nil, err
		}
	}
	rest, err := c.others(arguments)
	if err != nil {
		return nil, err
	}
	values := query(c.query, arguments)
	var payload io.Reader
	if c.writes() {
		filled := any(rest)
		if c.body != nil {
			filled, _ = body(c.body, arguments)
		}
		raw, err := json.Marshal(filled)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(raw)
	} else {
		for name, value := range rest {
			add(values, name, value)
		}
	}
	target := c.origin + strings.Join(path, "/")
	if len(values) > 0 {
		target += "?" + values.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, c.config.Method, target, payload)
	if err != nil {
		return nil, errors.New("the arguments make no valid address")
	}
	request.Header.Set("User-Agent", "mneme")
	request.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.5")
	if payload != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.config.Headers {
		request.Header.Set(name, value)
	}
	for name, value := range map[string]string{
		"Mneme-Run-Id": call.Run, "Mneme-Call-Id": call.ID, "Mneme-Chat-Id": call.Chat, "Mneme-User": call.User,
	} {
		if value != "" {
			request.Header.Set(name, url.PathEscape(value)) // a user's name may hold anything
		}
	}
	if trail := telemetry.FromContext(ctx); trail.Trace != "" {
		request.Header.Set(telemetry.Header, trail.Parent())
	}
	return request, nil
}

// others are the arguments that stand neither in the address nor in the body of the
// configuration.
func (c *Call) others(arguments map[string]any) (map[string]any, error) {
	rest := map[string]any{}
	for name, value := range arguments {
		_, declared := c.declared[name]
		switch {
		case slices.Contains(c.rest, name), !declared && c.open && c.body == nil:
			rest[name] = value
		case !declared:
			return nil, fmt.Errorf("there is no parameter %q; leave it out", name)
		}
	}
	return rest, nil
}

// unreachable is why there is no answer, in words without addresses; the log has the cause.
func (c *Call) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if urlErr, ok := errors.AsType[*url.Error](err); ok { // it has the whole address, with the arguments
		err = urlErr.Err
	}
	zerolog.Ctx(ctx).Warn().Err(err).Str("tool", c.config.Name).Msg("a REST call had no answer")
	var certificate *tls.CertificateVerificationError
	var dial *net.OpError
	switch {
	case errors.As(err, &certificate):
		return errors.New("it was not called: the certificate of its server is not valid")
	case errors.As(err, &dial) && dial.Op == "dial":
		return errors.New("it was not called: its server cannot be reached")
	}
	return errors.New("its server did not answer, or broke off; it is not known whether it did what it was called for")
}

// bodyText is an answer's body as a text. What is none is described.
func bodyText(raw []byte, r *http.Response) string {
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind == "" {
		kind = http.DetectContentType(raw)
		kind, parameters, _ = mime.ParseMediaType(kind) // it is one of its own
	}
	if set := strings.ToLower(parameters["charset"]); set != "" && set != "utf-8" && set != "us-ascii" {
		if text, err := charset.NewReaderLabel(set, bytes.NewReader(raw)); err == nil {
			if decoded, err := io.ReadAll(text); err == nil {
				raw = decoded
			}
		}
	}
	name, _, _ := strings.Cut(kind, "/")
	_, suffix, _ := strings.Cut(kind, "+")
	textual := name == "text" || suffix == "json" || suffix == "xml" || slices.Contains([]string{
		"application/json", "application/xml", "application/javascript", "application/x-ndjson", "application/yaml",
		"application/x-www-form-urlencoded",
	}, kind)
	textual = textual || gjson.ValidBytes(raw) || utf8.Valid(raw) && kind == "application/octet-stream"
	if len(raw) > 0 && (!textual || bytes.IndexByte(raw, 0) >= 0) {
		size := fmt.Sprintf("%d bytes", len(raw))
		if r.ContentLength > int64(len(raw)) {
			size = fmt.Sprintf("%d bytes", r.ContentLength)
		}
		return fmt.Sprintf("(the answer is no text: %s, %s)", kind, size)
	}
	return string(raw)
}
