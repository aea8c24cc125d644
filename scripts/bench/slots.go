package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"mneme/internal/stack"
	"mneme/memory"
	"mneme/memory/redisstore"
)

// slots is how many hash slots a Cluster has, and masters how many nodes this one has, of which each has one part.
const slots, masters = 16384, 6

// pageOf is how many chats a page of the list has, and rounds how often each is read.
const pageOf, rounds = 50, 21

// slotsCmd measures how evenly chats and their lists lie in a Cluster.
func slotsCmd() *cobra.Command {
	var mneme string
	var args []string
	var chats int
	var shards []int
	b := &cobra.Command{
		Use: "slots", Short: "How evenly small chats, and the list of them, lie in the slots of a Cluster",
		Long: `Starts a Redis Cluster of six masters without replicas. A chat of one turn is made by the services over a Redis of their own; what does not end of it is restored in the Cluster under random ids, each with a turn of its own, and listed by the store's own functions, for each number of shards anew. Bytes are MEMORY USAGE of each key, summed by its slot. Then it reads the first page of the list, one in its middle and the last one.`,
		Run: func(*cobra.Command, []string) {
			l := newLab(mneme)
			defer l.Stop()
			client, nodes := l.cluster(args)
			ids, began := fillChats(client, template(l), chats)
			plain := weigh(nodes, "*")
			plain.print("chats alone", nodes)
			store, baseline := redisstore.New(client, zerolog.Nop()), [3]float64{}
			for i, n := range shards {
				store.ListShards = n
				for chunk := range slices.Chunk(ids, 500) {
					must(0, store.Chats.List(bg, chunk...))
				}
				sums := weigh(nodes, "mneme:chats*")
				for slot := range sums {
					sums[slot] += plain[slot]
				}
				sums.print(fmt.Sprintf("with their list in %d", n), nodes)
				for pos, name := range []string{"first", "middle", "last"} {
					cursor := redisstore.Place{Used: began + int64([]int{chats, chats / 2, pageOf}[pos]), Member: "~"}
					took := pageTime(store, cursor)
					if i == 0 {
						baseline[pos] = took
					}
					fmt.Printf("    %-6s page of %d %8.2f ms, %6.1f times that of %d\n", name, pageOf, took, took/baseline[pos],
						shards[0])
				}
				for _, key := range append(memory.ShardKeys(memory.KindChats, memory.Tenant{}, n), string(memory.KindChats)) {
					must(0, client.Unlink(bg, key).Err())
				}
			}
		},
	}
	b.Flags().StringVar(&mneme, "mneme", "", "A built mneme, a `FILE`; without it one is built from ./cmd/mneme")
	b.Flags().StringSliceVar(&args, "redis", nil, "Arguments of redis-server, such as --zset-max-listpack-entries,512")
	b.Flags().IntVar(&chats, "chats", 100_000, "How many")
	b.Flags().IntSliceVar(&shards, "shards", []int{1, 4096}, "Numbers of shards (redis.list_shards)")
	return b
}

// cluster starts the masters, and forms a Cluster of them.
func (l *lab) cluster(args []string) (client *redis.ClusterClient, nodes []*redis.Client) {
	for i := range masters {
		addr, dir := freeAddr(), filepath.Join(l.Dir, fmt.Sprint("node", i))
		must(0, os.Mkdir(dir, 0o700))
		l.run(stack.Redis(dir, addr, append(args, "--cluster-enabled", "yes")...))
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute}))
	}
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	must(0, stack.FormCluster(ctx, masters, nodes...))
	one := []string{nodes[0].Options().Addr} // which knows the others
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: one, ReadTimeout: time.Minute}), nodes
}

// template is what stays of a chat of one turn: DUMPs by the key, in which CHAT stands for the id.
func template(l *lab) map[string]string {
	v := unitsVendor()
	defer v.Close()
	mark := l.Mark()
	defer l.StopTo(mark)
	s := l.Services(v, true)
	ask(s, "POST", "/v1/chats/chat-0000000000000000/messages", "", `{"message":"hi"}`)
	time.Sleep(2 * time.Second) // what comes behind the answer
	dumps := map[string]string{}
	for _, key := range must(s.Redis.Keys(bg, "*chat-0000000000000000*").Result()) {
		if s.Redis.TTL(bg, key).Val() < 0 {
			dumps[strings.Replace(key, "chat-0000000000000000", "CHAT", 1)] = must(s.Redis.Dump(bg, key).Result())
		}
	}
	return dumps
}

// fillChats restores as many chats, with turns in their order from began on.
func fillChats(client *redis.ClusterClient, dumps map[string]string, count int) (ids []memory.Chat, began int64) {
	random := rand.New(rand.NewPCG(1, 2))
	began = time.Now().UnixMilli() - int64(count)
	turn := began
	for range count {
		ids = append(ids, memory.MustChat(fmt.Sprintf("chat-%016x", random.Uint64())))
	}
	for chunk := range slices.Chunk(ids, 500) {
		must(client.Pipelined(bg, func(p redis.Pipeliner) error {
			for _, chat := range chunk {
				for key, dump := range dumps {
					p.RestoreReplace(bg, strings.Replace(key, "CHAT", chat.ID(), 1), 0, dump)
				}
			}
			return nil
		}))
		must(client.Pipelined(bg, func(p redis.Pipeliner) error { // behind all of them: one may be sent again
			for _, chat := range chunk {
				meta := memory.RedisKey{Kind: memory.KindMeta, Key: memory.ChatKey(chat)}.String()
				p.HSet(bg, meta, "turn", turn)
				turn++
			}
			return nil
		}))
	}
	return ids, began
}

// bySlot are bytes.
type bySlot [slots]float64

// weigh sums the keys that match.
func weigh(nodes []*redis.Client, pattern string) (sums bySlot) {
	for _, node := range nodes {
		for cursor, hasMore := uint64(0), true; hasMore; hasMore = cursor != 0 {
			keys, next, err := node.Scan(bg, cursor, pattern, 1000).Result()
			cursor = must(next, err)
			cmds := must(node.Pipelined(bg, func(p redis.Pipeliner) error {
				for _, key := range keys {
					p.ClusterKeySlot(bg, key)
					p.MemoryUsage(bg, key, 0)
				}
				return nil
			}))
			for i := 0; i < len(cmds); i += 2 {
				sums[cmds[i].(*redis.IntCmd).Val()] += float64(cmds[i+1].(*redis.IntCmd).Val())
			}
		}
	}
	return sums
}

// print says of each node what its slots have, and what is in the fullest one.
func (sums *bySlot) print(what string, nodes []*redis.Client) {
	fmt.Println(what)
	for i, node := range nodes {
		first, total := slots*i/masters, 0.0
		own := sums[first : slots*(i+1)/masters]
		for _, n := range own {
			total += n
		}
		mean, most := total/float64(len(own)), slices.Max(own)
		fullest := first + slices.Index(own, most)
		fmt.Printf("    node %d: mean %9.0f B a slot, slot %5d has %11.0f B, %8.2f times the mean:", i+1, mean, fullest, most,
			most/mean)
		chats := 0
		for _, key := range must(node.ClusterGetKeysInSlot(bg, fullest, 10_000).Result()) {
			if strings.HasPrefix(key, "chat_history:") {
				chats++
			} else if strings.HasPrefix(key, string(memory.KindChats)) {
				fmt.Printf(" %s %d B,", key, must(node.MemoryUsage(bg, key, 0).Result()))
			}
		}
		fmt.Printf(" %d chats\n", chats)
	}
}

// pageTime is how long a page takes, in ms: the median.
func pageTime(store *redisstore.Store, cursor redisstore.Place) float64 {
	var took []time.Duration
	for range rounds {
		began := time.Now()
		page := must(store.Chats.ByUse(bg, memory.Tenant{}, cursor, pageOf))
		took = append(took, time.Since(began))
		if len(page) != pageOf {
			panic(fmt.Errorf("the page behind %v has %d chats", cursor, len(page)))
		}
	}
	return ms(median(took))
}
