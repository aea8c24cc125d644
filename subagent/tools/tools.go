// Package tools holds the small exact tools that subagents work with: a calculator over rational numbers and date
// arithmetic. They own nothing, never reach anything outside the process, and are safe for concurrent use.
package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"mneme/memory"
	"mneme/subagent/loop"
)

// Calculator is exact arithmetic.
func Calculator() loop.Tool { return calculator{} }

// Date is date arithmetic. now tells the current time, in the zone that answers
// are given in.
func Date(now func() time.Time) loop.Tool { return date{now} }

// decode reads a call's arguments, a JSON object, into the struct that v points
// to. Errors name the field and are written for the model that made the call.
func decode(call memory.ToolCall, v any) error {
	text := call.Function.Arguments
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, tokenErr := d.Token(); tokenErr != io.EOF {
			err = errors.New("something follows the JSON object")
		}
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("the arguments must be a JSON object, not %s", wrong.Value)
	case errors.As(err, &wrong):
		kind := "an integer"
		if wrong.Type.Kind().String() == "string" {
			kind = "a string"
		}
		return fmt.Errorf("the field %q must be %s, not %s", wrong.Field, kind, wrong.Value)
	}
	return fmt.Errorf("the arguments cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// schema makes a JSON schema compact, so that it can be laid out in the source.
func schema(text string) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		panic(fmt.Sprintf("tools: a schema is not JSON: %v", err))
	}
	return b.Bytes()
}
