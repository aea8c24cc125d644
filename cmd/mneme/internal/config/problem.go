package config

import "fmt"

// Error is a value that cannot be used. Its message is one sentence.
type Error struct {
	Where   string // "mneme.yaml:12", or the name of an environment variable
	Key     string // "webmemory.listen"; empty when the place says it all
	Problem string // what is wrong and how to mend it
}

func (e *Error) Error() string {
	switch {
	case e.Where == "" && e.Key == "":
		return "configuration: " + e.Problem
	case e.Where == "":
		return "configuration: " + e.Key + ": " + e.Problem
	case e.Key == "":
		return e.Where + ": " + e.Problem
	}
	return e.Where + ": " + e.Key + ": " + e.Problem
}

func bad(key, format string, args ...any) error {
	return &Error{Key: key, Problem: fmt.Sprintf(format, args...)}
}
