package httptool

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// placeholder is "{name}", where an argument goes.
var placeholder = regexp.MustCompile(`\{([A-Za-z0-9_.$-]+)\}`)

// names are those of the placeholders in a text.
func names(text string) (list []string) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// placeholderName is the name of a placeholder that is all of a text.
func placeholderName(text string) (name string, ok bool) {
	m := placeholder.FindStringSubmatch(text)
	if m == nil || m[0] != text {
		return "", false
	}
	return m[1], true
}

// segment fills the placeholders of one segment of a path, and gives it percent-encoded. What
// arguments become can neither leave the segment nor vanish.
func segment(template string, arguments map[string]any) (string, error) {
	if len(names(template)) == 0 {
		return template, nil
	}
	var wrong error
	filled := placeholder.ReplaceAllStringFunc(template, func(m string) string {
		name := m[1 : len(m)-1]
		value, present := arguments[name]
		text, plain := scalar(value)
		switch {
		case wrong != nil:
		case !present || value == nil:
			wrong = fmt.Errorf("the argument %s is missing, which is part of the address", name)
		case !plain:
			wrong = fmt.Errorf("the argument %s is part of the address: a text or a number is needed", name)
		case len(text) > maxSegment:
			wrong = fmt.Errorf("the argument %s is part of the address and has more than %d bytes", name, maxSegment)
		case leaves(text):
			wrong = fmt.Errorf(`the argument %s is part of the address and may not be empty, ".", ".." or a path of such, `+
				`nor hold line breaks and other control characters`, name)
		}
		return url.PathEscape(text)
	})
	if plain, err := url.PathUnescape(filled); wrong == nil && (err != nil || leaves(plain)) {
		wrong = fmt.Errorf(`the arguments make %q of a part of the address, which would lead elsewhere`, plain)
	}
	return filled, wrong
}

// maxSegment bounds an argument in a path, in bytes.
const maxSegment = 2048

// leaves says whether a text would not stay one segment of a path, read by any server on the way
// that decodes it once more.
func leaves(text string) bool {
	for range 5 {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return true
		}
		for part := range strings.SplitSeq(strings.ReplaceAll(text, `\`, "/"), "/") {
			part, _, _ = strings.Cut(part, ";") // behind it servers expect parameters of the segment
			if part = strings.TrimSpace(part); part == "" || part == "." || part == ".." {
				return true
			}
		}
		decoded, err := url.PathUnescape(text)
		if err != nil || decoded == text {
			return false
		}
		text = decoded
	}
	return true
}

// query fills the values of a query: a list becomes one value each, what is not given none.
func query(templates url.Values, arguments map[string]any) url.Values {
	filled := url.Values{}
	for key, values := range templates {
		for _, template := range values {
			if name, ok := placeholderName(template); ok {
				add(filled, key, arguments[name])
				continue
			}
			filled.Add(key, placeholder.ReplaceAllStringFunc(template, func(m string) string {
				text, _ := scalar(arguments[m[1:len(m)-1]])
				return text
			}))
		}
	}
	return filled
}

// add adds an argument to a query.
func add(values url.Values, key string, value any) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, one := range list {
		if one == nil {
			continue
		}
		text, plain := scalar(one)
		if !plain {
			raw, _ := json.Marshal(one) // it was JSON
			text = string(raw)
		}
		values.Add(key, text)
	}
}

// scalar is a single value as a text; not plain for a list or an object.
func scalar(value any) (text string, plain bool) {
	switch v := value.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case []any, map[string]any:
		return "", false
	}
	return fmt.Sprint(value), true // a json.Number or a bool
}

// body puts arguments in the places of the strings that are their placeholders alone. Members
// without a given argument are left out.
func body(template any, arguments map[string]any) (filled any, present bool) {
	switch v := template.(type) {
	case string:
		if name, ok := placeholderName(v); ok {
			value, present := arguments[name]
			return value, present
		}
	case []any:
		list := make([]any, 0, len(v))
		for _, one := range v {
			if value, present := body(one, arguments); present {
				list = append(list, value)
			}
		}
		return list, true
	case map[string]any:
		members := map[string]any{}
		for key, one := range v {
			if value, present := body(one, arguments); present {
				members[key] = value
			}
		}
		return members, true
	}
	return template, true
}

// bodyNames are the names of the placeholders of a body.
func bodyNames(template any) (list []string) {
	switch v := template.(type) {
	case string:
		if name, ok := placeholderName(v); ok {
			list = append(list, name)
		}
	case []any:
		for _, one := range v {
			list = append(list, bodyNames(one)...)
		}
	case map[string]any:
		for _, one := range v {
			list = append(list, bodyNames(one)...)
		}
	}
	return list
}
