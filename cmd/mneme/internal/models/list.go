// Package models asks vendors and model servers on this machine which models they
// have: to propose a first one to an operator that has configured none, and to say in a
// sentence what is wrong with a backend before its first call fails. It asks lists and
// descriptions only, which cost nothing.
package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/tidwall/gjson"

	"mneme/cmd/mneme/internal/config"
)

// maxAnswer bounds what is read of an answer, in bytes; some vendors list hundreds of
// models with their descriptions.
const maxAnswer = 16 << 20

// Failures to get a list. They are wrapped with a detail in brackets.
var (
	errRefused  = errors.New("the key is refused")           // 401 or 403
	errNoList   = errors.New("there is no list of models")   // what answers is no such API
	errTroubled = errors.New("the vendor could not answer")  // 429 or 5xx
	errSilent   = errors.New("nothing answers at the place") // no connection, or no answer in time
)

// client follows no redirect, as the gateway does not: a key goes to one host only.
var client = &http.Client{
	Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 4, IdleConnTimeout: 5 * time.Second,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// API is where and how models are asked for.
type API struct {
	Kind    string // config.KindOpenAI, config.KindResponses, config.KindInteractions or config.KindAnthropic
	BaseURL string // as in a backend's base_url
	Key     string // empty for none
}

// modelsURL is the address of the list, or of what stands below it.
func (a API) modelsURL(rest string) string {
	base := strings.TrimRight(a.BaseURL, "/")
	if a.Kind == config.KindAnthropic {
		base += "/v1"
	}
	return base + "/models" + rest
}

func (a API) header() http.Header {
	h := http.Header{}
	if a.Kind == config.KindAnthropic {
		h.Set("Anthropic-Version", "2023-06-01")
	}
	switch {
	case a.Key == "":
	case a.Kind == config.KindAnthropic:
		h.Set("X-Api-Key", a.Key)
	case a.Kind == config.KindInteractions:
		h.Set("X-Goog-Api-Key", a.Key)
	default:
		h.Set("Authorization", "Bearer "+a.Key)
	}
	return h
}

// members are the names of what is read of a list: Google's own differs.
func (a API) members() (list, id string) {
	if a.Kind == config.KindInteractions {
		return "models", "name"
	}
	return "data", "id"
}

// has asks for one model by name: vendors know more names than they list.
func (a API) has(ctx context.Context, model string) bool {
	_, member := a.members()
	id, err := ask(ctx, a.modelsURL("/"+url.PathEscape(model)), a.header(), nil, member)
	return err == nil && id.Str != ""
}

// list gives the ids of the models that the API has, in its order.
func (a API) list(ctx context.Context) (ids []string, err error) {
	rest := ""
	if a.Kind == config.KindAnthropic {
		rest = "?limit=1000"
	}
	member, id := a.members()
	data, err := ask(ctx, a.modelsURL(rest), a.header(), nil, member)
	for _, m := range data.Array() {
		// Gemini's own names have a prefix that calls do not need.
		if name := strings.TrimPrefix(m.Get(id).Str, "models/"); usable(name) {
			ids = append(ids, name)
		}
	}
	return ids, err
}

// usable leaves out names that no configuration should hold and no terminal should show.
func usable(id string) bool {
	return id != "" && len(id) <= 200 && !strings.ContainsFunc(id, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r)
	})
}

// ask gets a member of a JSON answer, by POST if there is a body. Its error wraps one of the
// failures above and holds nothing of what the vendor wrote, which may repeat the key. An answer
// without the member is that of another API.
func ask(ctx context.Context, target string, header http.Header, body any,
	member string) (result gjson.Result, err error) {
	method, content := http.MethodGet, []byte(nil)
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return result, err
		}
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(content))
	if err != nil {
		return result, fmt.Errorf("%w (not a URL that can be asked)", errSilent)
	}
	req.Header = header
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return result, fmt.Errorf("%w (%s)", errSilent, why(err))
	}
	defer resp.Body.Close()
	switch s := resp.StatusCode; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusBadRequest && aboutKey(resp.Body):
		return result, fmt.Errorf("%w (%d)", errRefused, s)
	case s == http.StatusTooManyRequests || s >= 500 && s != http.StatusNotImplemented:
		return result, fmt.Errorf("%w (%d)", errTroubled, s)
	case s != http.StatusOK:
		return result, fmt.Errorf("%w (%d)", errNoList, s)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return result, fmt.Errorf("%w (%s)", errSilent, why(err))
	}
	result = gjson.GetBytes(text, member)
	if !gjson.ValidBytes(text) || !result.Exists() || result.Type == gjson.Null {
		return gjson.Result{}, fmt.Errorf("%w (the answer is not JSON of this shape)", errNoList)
	}
	return result, nil
}

// aboutKey says whether Gemini means the key, of which it says so with 400.
func aboutKey(body io.Reader) bool {
	text, err := io.ReadAll(io.LimitReader(body, 64<<10))
	return err == nil && bytes.Contains(bytes.ToLower(text), []byte("api key not valid"))
}

// why says in a few words why there is no connection.
func why(err error) string {
	var (
		dns     *net.DNSError
		timeout net.Error
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "no such host"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err.Error()
	}
	return "the connection failed"
}
