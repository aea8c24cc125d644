// Package s3 is a cold.Store in a bucket of a server that speaks the S3 API. It is apart from package cold, so that what
// only reads and writes objects does not link a client of S3.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"mneme/memory/cold"
)

// Config says where a bucket is, and who asks.
type Config struct {
	Endpoint  string // its scheme, host and port; "" for Amazon's
	Region    string // "" has it found out
	Bucket    string
	Prefix    string // of all names; "" for none
	AccessKey string
	SecretKey string
}

// store is a cold.Store in a bucket.
type store struct {
	client         *minio.Client
	bucket, prefix string
}

// Open is the store in a bucket. It asks nothing yet: a server that is away does not keep the service from its start.
// Errors are about the configuration.
func Open(c Config) (cold.Store, error) {
	endpoint, err := url.Parse(cmp.Or(c.Endpoint, "https://s3.amazonaws.com"))
	if err != nil {
		return nil, err
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""), Secure: endpoint.Scheme == "https", Region: c.Region,
		MaxRetries: 3,
	})
	if c.Prefix = strings.Trim(c.Prefix, "/"); c.Prefix != "" {
		c.Prefix += "/"
	}
	return store{client, c.Bucket, c.Prefix}, err
}

// Put implements cold.Store.
func (s store) Put(ctx context.Context, name string, data []byte) error {
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(data), int64(len(data)),
		// In one request: of several parts a killed process would leave some.
		minio.PutObjectOptions{ContentType: "application/gzip", SendContentMd5: true, DisableMultipart: true})
	return s.failed(err, name)
}

// Get implements cold.Store.
func (s store) Get(ctx context.Context, name string) ([]byte, error) {
	object, err := s.client.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, s.failed(err, name)
	}
	defer object.Close()
	data, err := io.ReadAll(object)
	return data, s.failed(err, name)
}

// Delete implements cold.Store.
func (s store) Delete(ctx context.Context, name string) error {
	return s.failed(s.client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}), name)
}

// List implements cold.Store.
func (s store) List(ctx context.Context, folder string, each func(string, time.Time) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // or the goroutine behind the channel goes on
	opts := minio.ListObjectsOptions{Prefix: s.prefix + folder, Recursive: true}
	for o := range s.client.ListObjects(ctx, s.bucket, opts) {
		if o.Err != nil {
			return s.failed(o.Err, folder)
		}
		if err := each(strings.TrimPrefix(o.Key, s.prefix), o.LastModified); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// failed is an error of the client's, with what it is about.
func (s store) failed(err error, name string) error {
	switch {
	case err == nil:
		return nil
	case minio.ToErrorResponse(err).Code == minio.NoSuchKey:
		return cold.ErrNone
	}
	return fmt.Errorf("the object %s%s of the bucket %s: %w", s.prefix, name, s.bucket, err)
}
