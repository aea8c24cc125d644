package redisstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
)

// Tenants is about tenants as a whole: which there are, and what leads to all that one has, so that it can be
// erased without a look through the database. A tenant's chats are in its list; its users and its runs without a
// chat are in lists that the default tenant, which is not erased, does not have. No turn fences these lists: an
// entry is written before what it leads to, and taken out once that is gone.
type Tenants struct{ *core }

// TenantUse is what is known of a tenant.
type TenantUse struct {
	Tenant  memory.Tenant
	Chats   int
	Used    time.Time // the minute in which one of its keys was last used, zero for none
	Erasing bool      // its erasure has begun and is not over
}

// List gives the tenants of which keys were used or that are being erased, and those of more, in no certain order.
func (s Tenants) List(ctx context.Context, more ...memory.Tenant) ([]TenantUse, error) {
	var used, erasing *redis.ZSliceCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		used = p.ZRangeWithScores(ctx, string(memory.KindTenants), 0, -1)
		erasing = p.ZRangeWithScores(ctx, string(memory.KindErasing), 0, -1)
		return nil
	})
	if err != nil {
		return nil, failure(err, "listing the tenants")
	}
	all := map[memory.Tenant]*TenantUse{}
	entry := func(of memory.Tenant) *TenantUse {
		if all[of] == nil {
			all[of] = &TenantUse{Tenant: of}
		}
		return all[of]
	}
	for _, of := range more {
		entry(of)
	}
	of := func(z redis.Z) (memory.Tenant, bool) {
		name, _ := z.Member.(string)
		t, err := memory.ParseTenant(name)
		return t, err == nil && name != ""
	}
	for _, z := range used.Val() {
		if t, ok := of(z); ok {
			entry(t).Used = time.Unix(int64(z.Score), 0).UTC()
		}
	}
	for _, z := range erasing.Val() {
		if t, ok := of(z); ok {
			entry(t).Erasing = true
		}
	}
	counts := map[memory.Tenant][]*redis.IntCmd{}
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for t := range all {
			for _, key := range append(s.listKeys(memory.KindChats, t), s.listKeys(memory.KindCold, t)...) {
				counts[t] = append(counts[t], p.ZCount(ctx, key, "0", "+inf")) // without the pins
			}
		}
		return nil
	})
	if err != nil {
		return nil, failure(err, "counting the chats of tenants")
	}
	list := make([]TenantUse, 0, len(all))
	for t, u := range all {
		for _, count := range counts[t] {
			u.Chats += int(count.Val())
		}
		if (t == memory.Tenant{}) { // in its list stands also that it is filled
			for _, kind := range []memory.Kind{memory.KindChats, memory.KindCold} {
				filled, err := s.redis.ZScore(ctx, memory.ListKey(kind, t), filledMember).Result()
				if err == nil && filled > 0 {
					u.Chats--
				} else if err != nil && !errors.Is(err, redis.Nil) {
					return nil, failure(err, "counting the chats of tenants")
				}
			}
		}
		list = append(list, *u)
	}
	return list, nil
}

// Holds says how much of a tenant there is that lists name: chats, users and runs without a chat.
func (s Tenants) Holds(ctx context.Context, of memory.Tenant) (int, error) {
	keys := append(s.listKeys(memory.KindChats, of), s.listKeys(memory.KindCold, of)...)
	keys = append(keys, memory.ListKey(memory.KindUsers, of), memory.ListKey(memory.KindOneShots, of))
	cmds, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.ZCard(ctx, key)
		}
		return nil
	})
	if err != nil {
		return 0, failure(err, "counting what the tenant %s has", of)
	}
	all := 0
	for _, cmd := range cmds {
		all += int(cmd.(*redis.IntCmd).Val())
	}
	return all, nil
}

// BeginErasing notes that a tenant is being erased; first says that it had not been noted before.
func (s Tenants) BeginErasing(ctx context.Context, of memory.Tenant) (first bool, err error) {
	n, err := s.redis.ZAddNX(ctx, string(memory.KindErasing), redis.Z{Score: s.deadline(0), Member: of.String()}).Result()
	return n > 0, failure(err, "beginning to erase the tenant %s", of)
}

// OldestChats gives up to count chats of a tenant's list, those first that were not used for longest, and how many are
// in it.
func (s Tenants) OldestChats(ctx context.Context, of memory.Tenant, count int) (chats []memory.Chat, all int,
	err error) {
	lists := s.shardsOf(of, Place{}, 0, memory.KindChats, memory.KindCold)
	fronts, sizes := make([]*redis.ZSliceCmd, len(lists)), make([]*redis.IntCmd, len(lists))
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, list := range lists {
			fronts[i] = p.ZRangeWithScores(ctx, list.key, 0, int64((count-1)/len(lists)))
			sizes[i] = p.ZCard(ctx, list.key)
		}
		return nil
	})
	var strays []stray
	var oldest []Place
	for i, list := range lists {
		all += int(sizes[i].Val())
		for _, z := range fronts[i].Val() {
			id := z.Member.(string)
			p := Place{Used: int64(z.Score), Member: id}
			if _, chat := p.Chat(of); chat {
				oldest = append(oldest, p)
				if into := s.listKey(list.kind, of, id); into != list.key {
					strays = append(strays, stray{list, p, into})
				}
			} else if err == nil { // a pin, or another program's member
				err = s.redis.ZRem(ctx, list.key, id).Err()
				all--
			}
		}
	}
	if err == nil {
		err = gathered(ctx, s.core, strays)
	}
	slices.SortFunc(oldest, func(p, q Place) int { return q.before(p) })
	for _, p := range oldest[:min(count, len(oldest))] {
		if chat, ok := p.Chat(of); ok && !slices.Contains(chats, chat) {
			chats = append(chats, chat)
		}
	}
	return chats, all, failure(err, "listing the chats of the tenant %s", of)
}

// ForgetChat takes a chat off its tenant's list.
func (s Tenants) ForgetChat(ctx context.Context, chat memory.Chat) error {
	err := s.unlist(ctx, memory.KindChats, chat.Tenant(), chat.ID())
	if err == nil {
		err = s.unlist(ctx, memory.KindCold, chat.Tenant(), chat.ID())
	}
	return failure(err, "taking chat %s off the list", chat)
}

// Users gives up to count users of a tenant other than the default one, from the place after on, and how many
// there are.
func (s Tenants) Users(ctx context.Context, of memory.Tenant, after, count int) (users []memory.User, all int,
	err error) {
	key := memory.ListKey(memory.KindUsers, of)
	var page *redis.StringSliceCmd
	var number *redis.IntCmd
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		page, number = p.ZRange(ctx, key, int64(after), int64(after+count-1)), p.ZCard(ctx, key)
		return nil
	})
	if err != nil {
		return nil, 0, failure(err, "listing the users of the tenant %s", of)
	}
	for _, id := range page.Val() {
		if u, bad := of.User(id); bad == nil {
			users = append(users, u)
		}
	}
	return users, int(number.Val()), nil
}

// ForgetUser takes a user off the tenant's list once the notes are erased, with the list of the chats that the user
// posted in.
func (s Tenants) ForgetUser(ctx context.Context, u memory.User) error {
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Unlink(ctx, userChatsKey(u))
		p.ZRem(ctx, memory.ListKey(memory.KindUsers, u.Tenant()), u.ID())
		return nil
	})
	return failure(err, "forgetting the user %s", u)
}

// Forget removes a tenant's lists, of which nothing must be left, and ends its erasure last.
func (s Tenants) Forget(ctx context.Context, of memory.Tenant) error {
	keys := append(s.listKeys(memory.KindChats, of), s.listKeys(memory.KindCold, of)...)
	for _, kind := range []memory.Kind{memory.KindWaits, memory.KindUsers, memory.KindOneShots} {
		keys = append(keys, memory.ListKey(kind, of))
	}
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys { // one by one, since they lie in several slots of a Cluster
			p.Unlink(ctx, key)
		}
		return nil
	})
	if err != nil {
		return failure(err, "removing the lists of the tenant %s", of)
	}
	for _, list := range []memory.Kind{memory.KindTenants, memory.KindErasing} {
		if err := s.redis.ZRem(ctx, string(list), of.String()).Err(); err != nil {
			return failure(err, "taking the tenant %s off the list", of)
		}
	}
	return nil
}
