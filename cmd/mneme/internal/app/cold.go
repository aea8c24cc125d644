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

// openCold opens cold.store. Without cold.store, requests for sleeping chats are refused, because these chats would
// look empty. If Redis does not answer, each later request checks whether its chat sleeps.
func (a *app) openCold(cfg config.Config, store *redisstore.Store, log zerolog.Logger) (webmemory.Cold, error) {
	c := cfg.Cold
	bucket, prefix, remote := c.Bucket()
	switch {
	case c.Store == "":
		used := false
		unknown := a.untilKnown(func(ctx context.Context) (err error) {
			if used, err = store.Cold.InUse(ctx); used {
				log.Error().Msg("This Redis lists chats in a cold store, but cold.store is not set. Requests for these chats " +
					"are refused. Set cold.store to the folder or bucket of that store.")
			}
			return err
		})
		if unknown == nil && !used {
			return webmemory.Cold{}, nil
		}
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
		return webmemory.Cold{Store: s, IdleTime: c.IdleTime}, nil
	}
	if info, err := os.Stat(c.Store); err != nil || !info.IsDir() {
		return webmemory.Cold{}, fmt.Errorf("cold.store: there is no folder %s; make it, or mount its disk", c.Store)
	}
	return webmemory.Cold{Store: cold.Folder(c.Store), IdleTime: c.IdleTime}, nil
}
