package jsonrpc

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ID is the id of a call by the peer, a JSON string or number as it came.
type ID = jsontext.Value

// incoming is any message from the peer.
type incoming struct {
	ID     jsontext.Value `json:"id"` // nil when there is none
	Method string         `json:"method"`
	Params jsontext.Value `json:"params"`
	Result jsontext.Value `json:"result"` // nil when there is none, null is one
	Error  *Error         `json:"error"`
}

// The messages that we send.
type (
	call struct {
		Version string `json:"jsonrpc"`
		ID      int64  `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}
	answer struct {
		Version string `json:"jsonrpc"`
		ID      ID     `json:"id"`
		Result  any    `json:"result"`
	}
	refusal struct {
		Version string `json:"jsonrpc"`
		ID      ID     `json:"id"`
		Error   *Error `json:"error"`
	}
)

const version = "2.0"

// lenient takes members that stand twice, of which the last counts: what lies in
// params may have been written by a model.
var lenient = jsontext.AllowDuplicateNames(true)

// Decode reads params or a result. Members that v does not have are skipped.
func Decode(raw jsontext.Value, v any) error { return json.Unmarshal(raw, v, lenient) }

// parse reads a message. It must be one JSON object in valid UTF-8.
func parse(body []byte) (incoming, error) {
	var m incoming
	if err := Decode(body, &m); err != nil {
		return incoming{}, err
	}
	if m.ID == nil && m.Method == "" {
		return incoming{}, fmt.Errorf("%w: neither id nor method", ErrProtocol)
	}
	return m, nil
}

// encode makes a frame of a message.
func (c *Conn) encode(message any) ([]byte, error) {
	body, err := json.Marshal(message, lenient)
	if err != nil {
		return nil, fmt.Errorf("encoding a message: %w", err)
	}
	if len(body) > c.config.MaxFrame {
		return nil, fmt.Errorf("%w: %d bytes, above %d", ErrFrameTooLarge, len(body), c.config.MaxFrame)
	}
	return frame(body), nil
}

// number reads an id of ours.
func number(id jsontext.Value) (int64, bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}
