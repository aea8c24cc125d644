package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/internal/stack"
)

// The processes of a fleet: the nodes of a Cluster, three of them replicas, and the services, of which apiservers and
// gateways are behind one name each.
var (
	fleetNodes = []string{"redis-1", "redis-2", "redis-3", "redis-4", "redis-5", "redis-6"}
	fleetOrder = append(slices.Clone(fleetNodes), "proxy-a", "proxy-b", apiA, apiB, "apiserver-c", "apiserver-d",
		webA, webB, "webmemory-c")
)

// fleet is what a soak of many processes has besides them.
type fleet struct {
	cluster *redis.ClusterClient
	models  *stack.Balancer // of the gateways
	environ []string
	formed  bool
}

// newFleet makes the addresses, behind which nothing answers yet.
func newFleet(o options, s *testbed, addrs map[string]string) (*fleet, error) {
	nodes := s.addrsOf(redisName, addrs)
	apis, err := stack.Balance(s.addrsOf(apiName, addrs)...)
	models, failed := stack.Balance(s.addrsOf(proxyName, addrs)...)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	models.Slow.Store(int64(o.slow))
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes, ContextTimeoutEnabled: true})
	return &fleet{cluster: cluster, models: models, environ: []string{"MNEME_REDIS_URL=",
		"MNEME_REDIS_ADDRS=[" + strings.Join(nodes, ", ") + "]",
		"MNEME_REDIS_WAIT_REPLICAS=1", "MNEME_APISERVER_MAX_RUNS=10000",
		"MNEME_WEBMEMORY_APISERVER=http://" + apis.Addr().String(),
		"MNEME_APISERVER_PROXY=http://" + models.Addr().String()}}, nil
}

// addrsOf are the addresses of the processes of a kind.
func (s *testbed) addrsOf(kind string, byName map[string]string) (addrs []string) {
	for _, name := range s.namesOf(kind) {
		addrs = append(addrs, byName[name])
	}
	return addrs
}

// form makes a Cluster of the nodes, the first time, and waits until it is whole.
func (s *testbed) form() error {
	var nodes []*redis.Client
	for _, name := range fleetNodes {
		nodes = append(nodes, s.services[name].redis)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.formed {
		return stack.AwaitCluster(ctx, nodes...)
	}
	s.formed = true
	return stack.FormCluster(ctx, len(nodes)/2, nodes...)
}
