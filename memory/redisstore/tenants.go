package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/memory"
	"mneme/memory/bytecount"
	"mneme/memory/redisscript"
)

// Tenants is about tenants as a whole: which there are, and what leads to all that one has, so that it can be
// erased without a look through the database. A tenant's chats are in its list; its users and its runs without a
// chat are in lists that the default tenant, which is not erased, does not have. No turn fences these lists: an
// entry is written before what it leads to, and taken out once that is gone.
type Tenants struct {
	*core
	stored bytecount.Counts
}

// TenantUse is what is known of a tenant.
type TenantUse struct {
	Tenant  memory.Tenant
	Chats   int
	Bytes   int64     // stored, see package bytecount
	Used    time.Time // the minute in which one of its keys was last used, zero for none
	Erasing bool      // its erasure has begun and is not over
}

// List gives the tenants of which keys were used or that are being erased, and those of more, in no certain order.
func (s Tenants) List(ctx context.Context, more ...memory.Tenant) ([]TenantUse, error) {
	var used, erasing *redis.ZSliceCmd
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		used = p.ZRangeWithScores(ctx, string(memory.KindTenants), 0, -1)
		erasing = p.ZRangeWithScores(ctx, string(memory.KindErasing), 0, -1)
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
	list := make([]TenantUse, 0, len(all))
	for t, u := range all {
		if u.Chats, err = counted(ctx, s.core, s.chatLists(t)...); err != nil {
			return nil, failure(err, "counting the chats of tenants")
		}
		if u.Bytes, err = s.stored.Total(ctx, t); err != nil {
			return nil, err
		}
		if (t == memory.Tenant{}) { // in its list stands also that it is filled
			for _, list := range []string{memory.ListKey(memory.KindChats, t), coldList} {
				filled, err := s.redis.ZScore(ctx, list, filledMember).Result()
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

// chatLists are the keys of a tenant's lists of chats, those that are awake and those that sleep.
func (s *core) chatLists(of memory.Tenant) []string {
	return append(s.listKeys(memory.KindChats, of), s.listKeys(memory.KindCold, of)...)
}

// counted returns the total number of members of sorted sets. Pins, whose scores are negative, do not count.
func counted(ctx context.Context, s *core, keys ...string) (all int, err error) {
	cmds, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for _, key := range keys {
			p.ZCount(ctx, key, "0", "+inf")
		}
	})
	for _, cmd := range cmds {
		all += int(cmd.(*redis.IntCmd).Val())
	}
	return all, err
}

// BeginErasing notes that a tenant is being erased; first says that it had not been noted before.
func (s Tenants) BeginErasing(ctx context.Context, of memory.Tenant) (first bool, err error) {
	n, err := s.redis.ZAddNX(ctx, string(memory.KindErasing), redis.Z{Score: s.deadline(0), Member: of.String()}).Result()
	return n > 0, failure(err, "beginning to erase the tenant %s", of)
}

// SomeChats gives up to count chats of a tenant's list, and how many are in it.
func (s Tenants) SomeChats(ctx context.Context, of memory.Tenant, count int) (chats []memory.Chat, all int, err error) {
	places, err := merged(ctx, s.core, of, Place{}, count, memory.KindChats, memory.KindCold)
	for _, p := range places {
		if chat, ok := p.Chat(of); ok {
			chats = append(chats, chat)
		} else if err == nil { // another program's member
			err = s.unlist(ctx, memory.KindChats, of, p.Member)
		}
	}
	if err == nil {
		all, err = counted(ctx, s.core, s.chatLists(of)...)
	}
	return chats, all, failure(err, "listing the chats of the tenant %s", of)
}

// ForgetChat takes a chat off its tenant's list.
func (s Tenants) ForgetChat(ctx context.Context, chat memory.Chat) error {
	err := s.unlist(ctx, memory.KindChats, chat.Tenant(), chat.ID())
	if err == nil {
		err = unlistCold(ctx, s.core, chat)
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
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		page, number = p.ZRange(ctx, key, int64(after), int64(after+count-1)), p.ZCard(ctx, key)
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
	err := s.redis.Unlink(ctx, userChatsKey(u)).Err()
	if err == nil { // the list last, which leads to it, see core.forget
		err = s.redis.ZRem(ctx, memory.ListKey(memory.KindUsers, u.Tenant()), u.ID()).Err()
	}
	return failure(err, "forgetting the user %s", u)
}

// Forget removes a tenant's lists, of which nothing must be left, and ends its erasure last.
func (s Tenants) Forget(ctx context.Context, of memory.Tenant) error {
	for _, kind := range []memory.Kind{memory.KindWaits, memory.KindChats, memory.KindCold, memory.KindUsers,
		memory.KindStored} {
		if err := s.forget(ctx, memory.Chat{}, s.listKeys(kind, of), nil); err != nil {
			return failure(err, "removing the lists of the tenant %s", of)
		}
	}
	for _, list := range []memory.Kind{memory.KindTenants, memory.KindErasing} {
		if err := s.redis.ZRem(ctx, string(list), of.String()).Err(); err != nil {
			return failure(err, "taking the tenant %s off the list", of)
		}
	}
	return nil
}
