package app

import (
	"sync/atomic"

	"mneme/cmd/mneme/internal/config"
)

// swap makes what a service derives from a configuration, and gives the function that has the service use it from then
// on. What has begun keeps what it has loaded.
type swap func(config.Config) (use func(), err error)

// reloads are what services derived of their configuration, and how they do it again.
type reloads struct {
	current config.Config // what the services go by, as it was loaded
	swaps   []swap        // of each service, in the order of their start
	failed  atomic.Bool   // the last time
}

// live uses what swap makes of cfg, and of each configuration that is adopted later.
func (r *reloads) live(cfg config.Config, swap swap) error {
	use, err := swap(cfg)
	if err != nil {
		return err
	}
	use()
	r.swaps = append(r.swaps, swap)
	return nil
}

// reload has the services go on by the agents, limits and prices of the configuration as it is then: by all of them,
// or, if anything of it is wrong, by none.
func (r *reloads) reload(o Options) {
	unapplied, err := r.adopt(o.Load)
	r.failed.Store(err != nil)
	if err != nil {
		o.Log.Error().Err(err).Msg("the configuration was not taken over, and the one before stays: mend it, and send " +
			"SIGHUP again")
		return
	}
	for _, setting := range unapplied {
		o.Log.Warn().Str("setting", setting).Msg(setting + " needs a restart")
	}
	o.Log.Info().Msg("agents, limits and prices are those of the configuration as it is now")
}

// adopt is reload; left are the settings that need a restart.
func (r *reloads) adopt(load func() (config.Config, error)) (unapplied []string, err error) {
	fresh, err := load()
	if err != nil {
		return nil, err
	}
	next, unapplied, err := config.Adopt(r.current, fresh)
	if err != nil {
		return nil, err
	}
	var uses []func()
	for _, swap := range r.swaps {
		use, err := swap(next)
		if err != nil {
			return nil, err
		}
		uses = append(uses, use)
	}
	for _, use := range uses {
		use()
	}
	r.current = next
	return unapplied, nil
}
