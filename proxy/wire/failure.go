package wire

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Failure is an error as a door shows it: {"type":"error","error":{type,
// message}} in the messages dialect, {"error":{message,type,code}} in the chat
// dialect.
type Failure struct {
	Status  int    // HTTP status
	Type    string // of the messages dialect; empty: by Status
	Code    string // snake_case, for the chat dialect; empty: by Status
	Param   string // the member of the request that is at fault, for the chat dialect; empty for none
	Message string // one clear sentence, or the vendor's own
	Run     string // that the request belongs to, by which the logs know it; empty for none
}

func (f Failure) Error() string { return f.Message }

// classes are what an error is called in both dialects, by status.
var classes = map[int]struct{ messages, chat, code string }{
	400: {"invalid_request_error", "invalid_request_error", "bad_request"},
	401: {"authentication_error", "authentication_error", "invalid_api_key"},
	403: {"permission_error", "permission_error", "permission_denied"},
	404: {"not_found_error", "invalid_request_error", "not_found"},
	405: {"invalid_request_error", "invalid_request_error", "method_not_allowed"},
	408: {"timeout_error", "invalid_request_error", "request_timeout"},
	413: {"request_too_large", "invalid_request_error", "request_too_large"},
	415: {"invalid_request_error", "invalid_request_error", "unsupported_media_type"},
	422: {"invalid_request_error", "invalid_request_error", "unprocessable"},
	429: {"rate_limit_error", "rate_limit_error", "rate_limit_exceeded"},
	500: {"api_error", "server_error", "server_error"},
	501: {"api_error", "server_error", "not_configured"},
	502: {"api_error", "server_error", "backend_unreachable"},
	503: {"overloaded_error", "server_error", "unavailable"},
	504: {"timeout_error", "server_error", "backend_timeout"},
	529: {"overloaded_error", "server_error", "overloaded"},
}

// Body is the JSON of f in a dialect.
func (f Failure) Body(d Dialect) []byte {
	class, ok := classes[f.Status]
	if !ok {
		class = classes[500]
		if f.Status < 500 {
			class = classes[400]
		}
	}
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Param   string `json:"param,omitzero"`
		Code    string `json:"code,omitzero"`
		Run     string `json:"run_id,omitzero"`
	}
	var body any
	if d == Messages {
		body = struct {
			Type  string `json:"type"`
			Error detail `json:"error"`
		}{"error", detail{Type: either(f.Type, class.messages), Message: f.Message, Run: f.Run}}
	} else {
		body = struct {
			Error detail `json:"error"`
		}{detail{Type: class.chat, Message: f.Message, Param: f.Param, Code: either(f.Code, class.code), Run: f.Run}}
	}
	b, err := Marshal(body)
	if err != nil { // strings always encode
		panic(err)
	}
	return b
}

// Frame is f as the event that ends a stream of a dialect.
func (f Failure) Frame(d Dialect) []byte {
	if d == Messages {
		return AppendFrame(nil, ErrorEvent, f.Body(d))
	}
	return AppendFrame(nil, "", f.Body(d))
}

func either(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// maxMessage bounds what is shown of an error body that is in no known shape.
const maxMessage = 2 << 10

// ReadFailure understands a vendor's error body in either dialect, and shows
// what it does not understand as text.
func ReadFailure(status int, body []byte) Failure {
	f := Failure{Status: status}
	var shape struct {
		Error   jsontext.Value `json:"error"`
		Message jsontext.Value `json:"message"`
	}
	// A field of an unexpected type must not hide the others: hence raw values.
	if json.Unmarshal(body, &shape, lenient) == nil {
		var detail struct {
			Type    jsontext.Value `json:"type"`
			Message jsontext.Value `json:"message"`
			Code    jsontext.Value `json:"code"`
		}
		if json.Unmarshal(shape.Error, &detail, lenient) == nil {
			f.Type, f.Code, f.Message = unquote(detail.Type), unquote(detail.Code), unquote(detail.Message)
		}
		f.Message = either(either(f.Message, unquote(shape.Error)), unquote(shape.Message))
	}
	if f.Message == "" {
		f.Message = clip(strings.TrimSpace(string(body)), maxMessage)
	}
	if f.Message == "" {
		f.Message = either(http.StatusText(status), "the backend failed without saying why")
	}
	if f.Status == 0 {
		f.Status = statusOf(f.Type, f.Code)
	}
	if statusOf(f.Type, "") == http.StatusBadGateway {
		f.Type = "" // a name of the chat dialect only
	}
	return f
}

// statusOf finds the status of an error by what it is called: one that comes
// inside a stream has none.
func statusOf(kind, code string) int {
	for _, status := range []int{400, 401, 403, 404, 413, 429, 500, 529, 504} {
		if class := classes[status]; kind == class.messages || code != "" && code == class.code {
			return status
		}
	}
	return http.StatusBadGateway
}

func unquote(v jsontext.Value) string {
	var s string
	if json.Unmarshal(v, &s, lenient) != nil {
		return ""
	}
	return s
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
