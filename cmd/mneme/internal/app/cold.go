package app

import (
	"context"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/config"
	"mneme/memory/cold"
	"mneme/memory/cold/s3"
	"mneme/memory/redisstore"
	"mneme/webmemory"
)

// openCold is where idle chats go. If no store is configured and there are chats that sleep in one, they must not be
// taken for empty ones: requests for them are refused.
func openCold(ctx context.Context, cfg config.Config, store *redisstore.Store, log zerolog.Logger) (webmemory.Cold,
	error) {
	c := cfg.Cold
	bucket, prefix, remote := c.Bucket()
	switch {
	case c.Store == "":
		if !store.Cold.InUse(ctx) {
			return webmemory.Cold{}, nil
		}
		log.Error().Msg("chats sleep in a cold store, or Redis does not say that none do, and none is configured: set " +
			"cold.store to where it is; until then requests for such chats are refused")
		return webmemory.Cold{Store: cold.Absent{}}, nil
	case remote:
		if err := cfg.RequireSecrets("cold."); err != nil {
			return webmemory.Cold{}, err
		}
		s, err := s3.Open(s3.Config{Endpoint: c.Endpoint, Region: c.Region, Bucket: bucket, Prefix: prefix,
			AccessKey: c.AccessKeyEnv.Reveal(), SecretKey: c.SecretKeyEnv.Reveal()})
		if err != nil {
			return webmemory.Cold{}, fmt.Errorf("cold.store: %w", err)
		}
		return webmemory.Cold{Store: s, After: c.After}, nil
	}
	if at, err := os.Stat(c.Store); err != nil || !at.IsDir() {
		return webmemory.Cold{}, fmt.Errorf("cold.store: there is no folder %s; make it, or mount its disk", c.Store)
	}
	return webmemory.Cold{Store: cold.Folder(c.Store), After: c.After}, nil
}
