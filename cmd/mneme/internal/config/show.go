package config

import (
	"bytes"
	"net/url"
	"reflect"

	"github.com/goccy/go-yaml"
)

// YAML is the whole configuration as a file that Load reads. Behind each value that is
// no default stands where it came from. It holds no secret; a password in redis.url,
// which only a variable may give, is left out.
func (c Config) YAML() ([]byte, error) {
	if u, err := url.Parse(c.Redis.URL); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			u.User = url.User(u.User.Username())
			c.Redis.URL = u.String()
		}
	}
	comments := yaml.CommentMap{}
	for path, place := range c.origin.places {
		if scalar(path) {
			comments["$."+path] = []*yaml.Comment{yaml.LineComment(" " + place)}
		}
	}
	text, err := yaml.MarshalWithOptions(c, yaml.UseLiteralStyleIfMultiline(true), yaml.WithComment(comments))
	return append(bytes.TrimRight(text, "\n"), '\n'), err
}

// scalar says whether a path is that of a single value, beside which a comment can stand.
func scalar(path string) bool {
	t := typeAt(path)
	return t != nil && !isBlock(t) && !hasElements(t) && t.Kind() != reflect.Pointer
}
