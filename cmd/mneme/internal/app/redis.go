package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/backup"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory/embedded"
	"mneme/memory/redisstore"
)

// openRedis connects to the configured Redis, or opens the embedded store. The services of one process share it. A
// service starts without an answer from Redis and is not ready until Redis answers.
func (a *app) openRedis(cfg config.Config, log zerolog.Logger) (redis.UniversalClient, error) {
	if a.redis != nil {
		return a.redis, nil
	}
	redis.SetLogger(redisLog{log})
	o, err := a.redisOptions(cfg, log)
	if err != nil {
		return nil, err
	}
	client := redis.NewUniversalClient(o)
	a.push("redis client", client.Close)
	a.redis = client
	if !cfg.Redis.Embedded() {
		a.checkRedis(client, strings.Join(o.Addrs, ", "), cfg.Redis, log)
	}
	return client, nil
}

// store is that of the histories, for the services of one process one.
func (a *app) store(client redis.UniversalClient, log zerolog.Logger) *redisstore.Store {
	if a.memory == nil {
		a.memory = redisstore.New(client, log)
	}
	return a.memory
}

func (a *app) redisOptions(cfg config.Config, log zerolog.Logger) (*redis.UniversalOptions, error) {
	o, err := RedisOptions(cfg.Redis)
	if err != nil {
		return nil, err
	}
	if !cfg.Redis.Embedded() {
		o.OnConnect = nameConnection
		return o, nil
	}
	_, missing := os.Stat(filepath.Join(embeddedDir(cfg.DataDir), "journal"))
	a.fresh = errors.Is(missing, fs.ErrNotExist)
	store, err := embedded.Open(a.ctx, embedded.Options{
		Dir: embeddedDir(cfg.DataDir), Listen: cfg.Redis.EmbeddedListen, Log: log,
	})
	if err != nil {
		return nil, err
	}
	a.push("embedded store", store.Close)
	a.embedded = store
	if store.Addr() != nil {
		a.addrs.Redis = store.Addr().String()
	}
	o.Addrs, o.Dialer = []string{"embedded"}, store.Dial
	return o, nil
}

// nameConnection names a connection for backup.InUse. An ACL may forbid it, and nothing else needs the name.
func nameConnection(ctx context.Context, cn *redis.Conn) error {
	err := cn.ClientSetName(ctx, backup.ClientName).Err()
	if errors.As(err, new(redis.Error)) {
		return nil
	}
	return err
}

// RedisOptions say how a client connects to the configured Redis. For the embedded
// store they lack where it is.
func RedisOptions(cfg config.Redis) (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
		ContextTimeoutEnabled:    true,
		DialTimeout:              2 * time.Second,
		DialerRetries:            2,
		MaxRetries:               2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if cfg.URL != "" {
		u, err := redis.ParseURL(cfg.URL)
		if err != nil {
			return nil, fmt.Errorf("redis.url is not a Redis URL: %w", err)
		}
		o.Addrs, o.DB, o.TLSConfig = []string{u.Addr}, u.DB, u.TLSConfig
		o.Username, o.Password = u.Username, u.Password
		if u.Network == "unix" {
			o.Dialer = redis.NewDialer(u)
		}
	} else {
		o.Addrs, o.MasterName = cfg.Addrs, cfg.MasterName
	}
	if cfg.Username != "" {
		o.Username = cfg.Username
	}
	if cfg.PasswordEnv.Value != "" {
		o.Password = cfg.PasswordEnv.Value.Reveal()
	}
	return o, addTLS(o, cfg.TLS)
}

// addTLS adds the files of redis.tls. The client certificate is read again for each connection, so that it can be
// renewed.
func addTLS(o *redis.UniversalOptions, files config.RedisTLS) error {
	if files == (config.RedisTLS{}) {
		return nil
	}
	if o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if files.CA != "" {
		text, err := os.ReadFile(files.CA)
		if err != nil {
			return fmt.Errorf("redis.tls.ca: %w", err)
		}
		o.TLSConfig.RootCAs = x509.NewCertPool()
		if !o.TLSConfig.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("redis.tls.ca: %s holds no certificate in PEM", files.CA)
		}
	}
	if files.Cert == "" {
		return nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil, fmt.Errorf("redis.tls.cert and redis.tls.key: %w", err)
		}
		return &pair, nil
	}
	o.TLSConfig.GetClientCertificate = load
	_, err := load(nil)
	return err
}

// checkRedis logs that Redis cannot be used. Once Redis answers, it logs whether Redis may evict histories.
func (a *app) checkRedis(client redis.UniversalClient, addr string, cfg config.Redis, log zerolog.Logger) {
	err := a.untilKnown(func(ctx context.Context) error {
		if err := client.Ping(ctx).Err(); err != nil {
			return err
		}
		info, err := client.InfoMap(ctx, "memory").Result()
		evicts, ok := Evicts(info)
		switch {
		case err != nil && !errors.As(err, new(redis.Error)):
			return err
		case !ok: // an ACL may forbid INFO
			log.Warn().Err(err).Msg("Redis does not report its maxmemory-policy. Make sure that it is noeviction.")
		case evicts:
			log.Warn().Str("maxmemory-policy", info["Memory"]["maxmemory_policy"]).
				Msg("this Redis may evict histories when its memory is full; set maxmemory-policy noeviction")
		}
		return nil
	})
	if err == nil || a.ctx.Err() != nil {
		return
	}
	state, setting := "is unreachable", "redis.url (MNEME_REDIS_URL)"
	if errors.As(err, new(redis.Error)) {
		state = "refuses commands"
	}
	if cfg.URL == "" {
		setting = "redis.addrs and redis.password_env"
	}
	log.Error().Err(err).Msgf("Redis at %s %s. webmemory answers messages with a 503 until it works. Check %s.",
		addr, state, setting)
}

// untilKnown calls check and returns its error. After an error it repeats check in the background until check succeeds.
func (a *app) untilKnown(check func(context.Context) error) error {
	ctx, cancel := context.WithCancel(a.ctx)
	attempt := func() error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return check(ctx)
	}
	err := attempt()
	if err == nil {
		cancel()
		return nil
	}
	var checking sync.WaitGroup
	checking.Go(func() {
		for tick := time.Tick(2 * time.Second); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick:
				if attempt() == nil {
					return
				}
			}
		}
	})
	a.push("checks of Redis", func() error { cancel(); checking.Wait(); return nil })
	return err
}

// Evicts reports whether a server with this INFO deletes keys when its memory is full. known is false if the INFO has no
// maxmemory_policy.
func Evicts(info map[string]map[string]string) (evicts, ok bool) {
	policy := info["Memory"]["maxmemory_policy"]
	return policy != "noeviction", policy != ""
}

// adviseReplicas says what a failover of this Redis loses.
func adviseReplicas(cfg config.Redis, log zerolog.Logger) {
	if cfg.MasterName != "" && cfg.WaitReplicas == 0 {
		log.Warn().Msg("a failover of this Redis loses what its replica has not got yet; set redis.wait_replicas: 1, so " +
			"that an answer counts as stored once a replica has it")
	}
}

// redisLog is where go-redis tells of connections that failed; what matters of it
// comes back as an error too.
type redisLog struct{ log zerolog.Logger }

func (l redisLog) Printf(_ context.Context, format string, v ...any) {
	l.log.Debug().Msgf(format, v...)
}
