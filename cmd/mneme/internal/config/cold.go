package config

import (
	"cmp"
	"net/url"
	"strings"
	"time"
)

// Cold is where chats sleep that are idle for long.
type Cold struct {
	Store    string        `yaml:"store"`                // a folder, or s3://bucket/prefix; empty for none
	IdleTime time.Duration `yaml:"after" default:"720h"` // since a chat's last run
	// of the S3 API; empty for Amazon's
	Endpoint     string   `yaml:"endpoint" check:"omitempty,url"`
	Region       string   `yaml:"region"`         // of the bucket; empty: it is asked for
	AccessKeyEnv Variable `yaml:"access_key_env"` // names the variable that holds the key's id
	SecretKeyEnv Variable `yaml:"secret_key_env"` // names the variable that holds the key's secret
}

// Bucket is that of the store, and the prefix of its objects; ok is false for a folder.
func (c Cold) Bucket() (bucket, prefix string, ok bool) {
	u, err := url.Parse(c.Store)
	if err != nil || u.Scheme == "" {
		return "", "", false
	}
	return u.Host, u.Path, true
}

func (c Cold) check(string, Config) error {
	bucket, _, remote := c.Bucket()
	return cmp.Or(
		when(remote && (bucket == "" || !strings.HasPrefix(c.Store, "s3://")), "cold.store",
			"s3://bucket or s3://bucket/prefix is needed, or a folder; where the server is says cold.endpoint"),
		when(c.IdleTime < time.Hour, "cold.after", "chats fall asleep after an hour or more, not %v", c.IdleTime),
		when(!remote && c.Endpoint != "", "cold.endpoint", "it goes with cold.store: s3://bucket/prefix"),
		when(remote && (c.AccessKeyEnv.Name == "" || c.SecretKeyEnv.Name == ""), "cold.access_key_env",
			"a bucket needs a key: name the variables that hold it in cold.access_key_env and cold.secret_key_env"),
	)
}
