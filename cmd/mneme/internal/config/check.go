package config

import (
	"cmp"
	"fmt"
	"net"
	"net/textproto"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"mneme/cmd/mneme/internal/crossorigin"
)

// checkTag says what is wrong with a value by the tag "check" of its setting, rules with a comma between them:
//
//	required        is not empty
//	omitempty       the rules behind it are for a value that is there
//	positive        more than 0
//	min=N           N or more
//	range=A..B      from A to B; of a duration both have units
//	oneof=A B       one of these words
//	unique          the entries of a list have names of their own
//	keys=FORM       the names in a map are of a form
//	FORM            a text is of a form, see forms
//	dive            the rules behind it are for the elements of a list or a map
func (s setting) checkTag() (err error) {
	v := s.value
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	orDefault := ""
	for rule := range strings.SplitSeq(strings.TrimSuffix(s.check, ","), ",") {
		name, arg, _ := strings.Cut(rule, "=")
		low, high, _ := strings.Cut(arg, "..")
		switch name {
		case "":
		case "omitempty":
			if v.IsZero() {
				return nil
			}
			orDefault = ", or 0 for the default"
		case "required":
			err = when(v.IsZero(), s.path, "may not be empty; remove the key for its default")
		case "positive":
			err = when(!(number(v) > 0), s.path, "must be more than 0%s, is %v", orDefault, v)
		case "min":
			err = when(!(number(v) >= bound(v, low)), s.path, "must be %s or more%s, is %v", low, orDefault, v)
		case "range":
			err = when(!(number(v) >= bound(v, low) && number(v) <= bound(v, high)), s.path,
				"must be from %s to %s%s, is %v", low, high, orDefault, v)
		case "oneof":
			err = formed(s.path, v.String(), among(strings.Fields(arg)...))
		case "unique":
			used := map[string]bool{}
			for i := range v.Len() {
				name := v.Index(i).FieldByName("Name").String()
				err = cmp.Or(err, when(used[name], fmt.Sprintf("%s[%d].name", s.path, i),
					"%q stands here already; every name stands once", name))
				used[name] = true
			}
		case "keys":
			for _, name := range names(v) {
				err = cmp.Or(err, formed(join(s.path, name), name, forms[arg]))
			}
		default:
			err = formed(s.path, v.String(), forms[name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// formed is a problem of a key whose text is not of a form. What may be a secret is not repeated.
func formed(key, text string, form func(text string) string) error {
	problem := form(text)
	if secretLike(text) {
		problem = strings.ReplaceAll(problem, strconv.Quote(text), "what stands here")
	}
	return when(problem != "", key, "%s", problem)
}

// number is a value of a setting that has limits.
func number(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// bound is a limit of such a value, as its tag has it.
func bound(v reflect.Value, text string) float64 {
	if d, err := time.ParseDuration(text); err == nil && v.Type() == reflect.TypeFor[time.Duration]() {
		return float64(d)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("config: a limit that is no number: " + text)
	}
	return n
}

// forms are those that texts may have, each with what is wrong with a text; "" for nothing.
var forms = map[string]func(text string) string{
	"subagent":   pattern(name, "a subagent's name is 1 to 64 characters of a-z 0-9 _ -"),
	"member":     pattern(name, "a member's name is 1 to 64 characters of a-z 0-9 _ -"),
	"collection": pattern(name, "a collection's name is 1 to 64 characters of a-z 0-9 _ -"),
	"tool":       pattern(`^[a-zA-Z0-9_-]{1,64}$`, "a tool's name is 1 to 64 characters of a-z A-Z 0-9 _ -"),
	"tenant":     pattern(`^[a-z0-9-]{1,32}$`, "a tenant is 1 to 32 characters of a-z 0-9 -"),
	"server":     pattern(`^[a-z0-9_-]{1,32}$`, "the name of a server is 1 to 32 characters of a-z 0-9 _ -"),
	"extension":  pattern(`^\.[a-z0-9]{1,16}$`, "a file's extension is a full stop and a-z 0-9, such as .pdf"),
	"model":      pattern(`(?s).`, "it is the name of a model"),
	"pattern":    pattern(`(?s).`, `it is the name of a tool, such as find_customer or "order_*"`),
	"word":       pattern(`(?s).`, "it is a program or one of its arguments, such as [copilot]"),
	"effort":     among("auto", "none", "minimal", "low", "medium", "high", "xhigh", "max"),
	"address":    address,
	"url":        baseURL,
	"header":     header,
	"host":       normal(crossorigin.Host),
	"origin":     normal(crossorigin.Origin),
}

const name = `^[a-z0-9_-]{1,64}$` // of what has a place in a key of Redis

// pattern makes a form of a regular expression and of what the texts that it matches are.
func pattern(expression, is string) func(text string) string {
	matches := regexp.MustCompile(expression).MatchString
	return func(text string) string {
		switch {
		case matches(text):
			return ""
		case text == "":
			return "is empty or missing; " + is
		}
		return fmt.Sprintf("%s, not %q", is, text)
	}
}

// normal makes a form of a function that brings a value into its normal form.
func normal(form func(string) (string, error)) func(text string) string {
	return func(text string) string {
		if _, err := form(text); err != nil {
			return err.Error()
		}
		return ""
	}
}

func address(text string) string {
	_, port, err := net.SplitHostPort(text)
	if _, notANumber := strconv.ParseUint(port, 10, 16); err != nil || notANumber != nil {
		return fmt.Sprintf("host:port is needed, such as 127.0.0.1:8080, not %q", text)
	}
	return ""
}

// baseURL does not repeat what may be a secret.
func baseURL(text string) string {
	const needed = "an http:// or https:// URL is needed"
	u, err := url.Parse(text)
	switch {
	case (err != nil || u.Host == "") && (secretLike(text) || strings.Contains(text, "@")):
		return needed
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Sprintf(needed+", not %q", text)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "the URL may hold a host and a path only"
	}
	return ""
}

var headerName = pattern("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$", "the name of a header is needed, such as X-Chat-Id")

// header is the form of a name of a header that a client may use as it likes.
func header(name string) string {
	switch canonical := textproto.CanonicalMIMEHeaderKey(name); canonical {
	case "Authorization", "Cookie", "Content-Type":
		return canonical + " has a meaning of its own; take another header"
	}
	return headerName(name)
}

// among is the form of a text that is one of some words.
func among(words ...string) func(text string) string {
	return func(text string) string {
		switch list := strings.Join(words, ", "); {
		case text == "":
			return "is missing; it is one of: " + list
		case !slices.Contains(words, text):
			return fmt.Sprintf("%q is none of: %s", text, list)
		}
		return ""
	}
}
