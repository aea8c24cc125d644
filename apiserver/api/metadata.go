package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Metadata is what a document's caller says of it. In a body numbers and booleans stand
// for their text, to the digit as they were written, and null for nothing.
type Metadata map[string]string

// UnmarshalJSON reads an object of scalars.
func (m *Metadata) UnmarshalJSON(raw []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return errors.New(`metadata must be an object, such as {"lang": "en"}`)
	}
	*m = nil
	for key, value := range values {
		text, err := scalarText(value)
		if err != nil {
			return fmt.Errorf("metadata[%q] %w", key, err)
		}
		if text == nil {
			continue
		}
		if *m == nil {
			*m = Metadata{}
		}
		(*m)[key] = *text
	}
	return nil
}

// scalarText is the text of a scalar, nil for null.
func scalarText(raw json.RawMessage) (*string, error) {
	text := string(bytes.TrimSpace(raw))
	switch text[0] {
	case 'n':
		return nil, nil
	case '{', '[':
		return nil, fmt.Errorf("must be a string, a number, true or false, not %s",
			kindName(jsontext.Kind(text[0])))
	case '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
	}
	return &text, nil
}
