package api

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Metadata is what a document's caller says of it. In a body numbers and booleans stand
// for their text, to the digit as they were written, and null for nothing.
type Metadata map[string]string

// MetadataError says what is wrong with metadata.
type MetadataError struct{ Sentence string }

func (e *MetadataError) Error() string { return e.Sentence }

// UnmarshalJSON reads an object of scalars. Errors are a *MetadataError.
func (m *Metadata) UnmarshalJSON(raw []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return &MetadataError{`metadata must be an object, such as {"lang": "en"}`}
	}
	*m = nil
	for key, value := range values {
		text, err := scalarText(value)
		if err != nil {
			return &MetadataError{fmt.Sprintf("metadata[%q] %v", key, err)}
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
			article(map[byte]string{'{': "object", '[': "array"}[text[0]]))
	case '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
	}
	return &text, nil
}
