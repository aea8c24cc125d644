package wire

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mneme/memory/secrets"
)

// Failure is an error in the shape of an endpoint's dialect: {"type":"error","error":{type,
// message}} in the messages dialect, {"error":{message,type,code}} in chat completions.
type Failure struct {
	Status  int    // HTTP status
	Type    string // error type of the messages dialect; empty: derived from Status
	Code    string // snake_case code of the chat dialect; empty: derived from Status
	Param   string // the member of the request that is wrong, for the chat dialect; empty for none
	Message string // one clear sentence, or the vendor's own
	Run     string // id of the run that the request belongs to, for finding it in the logs; empty for none
}

func (f Failure) Error() string { return f.Message }

// Refuse is the failure of a request that cannot be translated.
func Refuse(format string, args ...any) error {
	return Failure{Status: 400, Message: fmt.Sprintf(format, args...)}
}

// classes are the names of an error in both dialects, by HTTP status.
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
	f.Message = secrets.Keyless(f.Message) // an address in it may have one
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
		}{"error", detail{Type: cmp.Or(f.Type, class.messages), Message: f.Message, Run: f.Run}}
	} else {
		body = struct {
			Error detail `json:"error"`
		}{detail{Type: class.chat, Message: f.Message, Param: f.Param, Code: cmp.Or(f.Code, class.code), Run: f.Run}}
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

// maxMessage bounds what is shown of an error body in an unknown shape, in bytes.
const maxMessage = 2 << 10

// ReadFailure parses a vendor's error body in either dialect. A body that it does not understand is
// shown as text.
func ReadFailure(status int, body []byte) Failure {
	if list := gjson.ParseBytes(body); list.IsArray() { // Google's front has an error in a list
		body = []byte(cmp.Or(list.Get("0").Raw, string(body)))
	}
	f := Failure{Status: status}
	number := 0 // that stands for a code
	var shape struct {
		Error   jsontext.Value `json:"error"`
		Message jsontext.Value `json:"message"`
		Base    jsontext.Value `json:"base_resp"`
	}
	// Raw values, so that a field of an unexpected type does not hide the other fields.
	if json.Unmarshal(body, &shape, lenient) == nil {
		var detail struct {
			Type    jsontext.Value `json:"type"`
			Message jsontext.Value `json:"message"`
			Code    jsontext.Value `json:"code"`
		}
		if json.Unmarshal(shape.Error, &detail, lenient) == nil {
			f.Type, f.Code, f.Message = stringOf(detail.Type), stringOf(detail.Code), stringOf(detail.Message)
			number, _ = strconv.Atoi(cmp.Or(f.Code, string(detail.Code)))
		}
		f.Message = cmp.Or(f.Message, stringOf(shape.Error), stringOf(shape.Message))
		if BaseResponseFailed(shape.Base) {
			base := gjson.ParseBytes(shape.Base)
			f.Message, number = cmp.Or(f.Message, base.Get("status_msg").Str), baseStatuses[base.Get("status_code").Int()]
		}
	}
	f.Message = cmp.Or(f.Message, Clip(strings.TrimSpace(string(body)), maxMessage), http.StatusText(status),
		"the backend failed without saying why")
	f.Status = cmp.Or(f.Status, statusOf(f, number))
	for _, class := range classes {
		if class.messages == f.Type {
			return f
		}
	}
	f.Type = "" // a name that only the chat dialect has
	return f
}

// ReadError reads the error in an answer or an event, which has no status.
func ReadError(e jsontext.Value) error {
	if len(e) == 0 {
		e = jsontext.Value("null")
	}
	return ReadFailure(0, slices.Concat([]byte(`{"error":`), e, []byte("}")))
}

// statuses are the names of errors in both dialects and of several vendors, with the status that
// they stand for.
var statuses = func() map[string]int {
	m := map[string]int{
		"context_length_exceeded": 400, "content_filter": 400, "insufficient_quota": 429, "rate_limit_reached_error": 429,
		"exceeded_current_quota_error": 429, "engine_overloaded_error": 429, "internal_server_error": 500,
		"internal_error": 500, "service_unavailable": 503, "service_unavailable_error": 503, "unavailable": 503,
		"server_is_overloaded": 503, "slow_down": 503, "timeout": 504, "model_not_found": 404, "model_not_found_error": 404,

		// Of Google's Interactions, https://ai.google.dev/gemini-api/docs/api-errors: what was blocked is the request's.
		"invalid_request": 400, "parameter_unknown": 400, "failed_precondition": 400, "out_of_range": 400,
		"missing_thought_signature": 400, "authentication": 401, "payment_required": 402, "aborted": 409,
		"quota_exceeded": 429, "too_many_requests": 429, "gateway_timeout": 504, "safety": 400, "recitation": 400,
		"language": 400, "prohibited_content": 400, "spii": 400, "blocklist": 400, "content_blocked": 400,
	}
	for _, status := range []int{400, 401, 403, 404, 413, 429, 500, 529, 504} {
		for _, name := range []string{classes[status].messages, classes[status].code} {
			m[name] = cmp.Or(m[name], status)
		}
	}
	return m
}()

// baseStatuses are the HTTP statuses of MiniMax's error codes, see
// https://platform.minimax.io/docs/api-reference/errorcode.
var baseStatuses = map[int64]int{1000: 500, 1001: 504, 1002: 429, 1004: 401, 1008: 402, 1024: 500, 1026: 400, 1027: 400,
	1033: 500, 1039: 429, 1041: 429, 1042: 400, 2013: 400, 2045: 429, 2049: 401, 2056: 429}

// BaseResponseFailed reports whether the base_resp of an answer of MiniMax, which has status 200, is an error.
func BaseResponseFailed(base []byte) bool {
	return len(base) > 0 && gjson.GetBytes(base, "status_code").Int() != 0
}

// statusOf derives the status of an error inside a stream, which has none: from a code that is a
// number of HTTP, from its names, else from the one word that vendors use for an overload.
func statusOf(f Failure, number int) int {
	if number >= 400 && number <= 599 {
		return number
	}
	status := cmp.Or(statuses[strings.ToLower(f.Code)], statuses[strings.ToLower(f.Type)])
	if status == 0 && strings.Contains(strings.ToLower(f.Message), "overloaded") {
		status = 529
	}
	return cmp.Or(status, http.StatusBadGateway)
}

// Clip cuts a text at n bytes, at a character, and marks the cut.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
