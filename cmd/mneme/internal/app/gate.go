package app

import (
	"fmt"

	"mneme/access"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory/telemetry"
)

// gate is what authenticates callers, if the configuration says so; nil if it does not. The
// services of one process share it. store says whether keys are looked up in the store, which a
// service that none but ours come to does not need, and which is not to be had if it is embedded
// in another process.
func (a *app) gate(cfg config.Config, svc *telemetry.Service, store bool) (*access.Gate, error) {
	const help = "API keys that were in use and that Redis was found to have lost."
	svc.Counter("mneme_lost_keys_total", help, func() int64 {
		if a.gated == nil {
			return 0
		}
		return a.gated.Keys.Losses.Load()
	})
	if cfg.Auth.Mode != config.AuthKeys {
		return nil, nil
	}
	if a.gated != nil {
		return a.gated, nil
	}
	secret := cfg.Auth.InternalSecret.Reveal()
	if secret == "" {
		var err error
		if secret, err = access.OpenSecret(cfg.SecretFile()); err != nil {
			return nil, err
		}
	}
	var file *access.File
	if cfg.Auth.KeysFile != "" {
		var err error
		if file, err = access.OpenFile(cfg.Auth.KeysFile, svc.Often); err != nil {
			return nil, fmt.Errorf("auth.keys_file: %w", err)
		}
	}
	if store || a.together {
		client, err := a.openRedis(cfg, svc.Often)
		if err != nil {
			return nil, err
		}
		a.keys = access.NewStore(client)
	}
	keys := access.NewAuthenticator(file, a.keys, svc.Often)
	a.push("keys", keys.Close)
	a.gated = &access.Gate{Keys: keys, Secret: secret}
	return a.gated, nil
}
