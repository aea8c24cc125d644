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

// Tenants handles tenants as a whole: the list of tenants, and the lists of each tenant's data, for an erasure without
// a scan of the database. One list holds a tenant's chats. Another list holds its users. The default tenant, which
// cannot be erased, has no such list. No turn fences the lists. An entry is written before the data and removed after
// it.
type Tenants struct {
	*core
	stored bytecount.Counts
}

// TenantUse describes a tenant and its use.
type TenantUse struct {
	Tenant  memory.Tenant
	Chats   int
	Bytes   int64     // stored bytes, see package bytecount
	Used    time.Time // minute of the last use of one of its keys, zero for none
	Erasing bool      // its erasure is unfinished
}

// List returns the tenants with used keys, the tenants that are being erased, and others, in no particular order.
func (s Tenants) List(ctx context.Context, others ...memory.Tenant) ([]TenantUse, error) {
	var used, erasing *redis.ZSliceCmd
	_, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		used = p.ZRangeWithScores(ctx, string(memory.KindTenants), 0, -1)
		erasing = p.ZRangeWithScores(ctx, string(memory.KindErasing), 0, -1)
	})
	if err != nil {
		return nil, failure(err, "listing the tenants")
	}
	uses := map[memory.Tenant]*TenantUse{}
	entry := func(tenant memory.Tenant) *TenantUse {
		if uses[tenant] == nil {
			uses[tenant] = &TenantUse{Tenant: tenant}
		}
		return uses[tenant]
	}
	for _, tenant := range others {
		entry(tenant)
	}
	parse := func(z redis.Z) (memory.Tenant, bool) {
		name, _ := z.Member.(string)
		t, err := memory.ParseTenant(name)
		return t, err == nil && name != ""
	}
	for _, z := range used.Val() {
		if t, ok := parse(z); ok {
			entry(t).Used = time.Unix(int64(z.Score), 0).UTC()
		}
	}
	for _, z := range erasing.Val() {
		if t, ok := parse(z); ok {
			entry(t).Erasing = true
		}
	}
	list := make([]TenantUse, 0, len(uses))
	for t, u := range uses {
		if u.Chats, err = counted(ctx, s.core, s.chatLists(t)...); err != nil {
			return nil, failure(err, "counting the chats of tenants")
		}
		if u.Bytes, err = s.stored.Total(ctx, t); err != nil {
			return nil, err
		}
		if (t == memory.Tenant{}) { // its lists also contain filledMember
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

// chatLists returns the keys of a tenant's lists of awake and sleeping chats.
func (s *core) chatLists(tenant memory.Tenant) []string {
	return append(s.listKeys(memory.KindChats, tenant), s.listKeys(memory.KindCold, tenant)...)
}

// counted returns the total number of members of sorted sets. It skips members with negative scores, such as pins.
func counted(ctx context.Context, s *core, keys ...string) (total int, err error) {
	cmds, err := redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		for _, key := range keys {
			p.ZCount(ctx, key, "0", "+inf")
		}
	})
	for _, cmd := range cmds {
		total += int(cmd.(*redis.IntCmd).Val())
	}
	return total, err
}

// BeginErasing records that a tenant is being erased. first reports that this was not recorded before.
func (s Tenants) BeginErasing(ctx context.Context, tenant memory.Tenant) (first bool, err error) {
	n, err := s.redis.ZAddNX(ctx, string(memory.KindErasing), redis.Z{Score: s.deadline(0),
		Member: tenant.String()}).Result()
	return n > 0, failure(err, "beginning to erase the tenant %s", tenant)
}

// SomeChats returns up to count chats of a tenant's lists, and the number of listed chats.
func (s Tenants) SomeChats(ctx context.Context, tenant memory.Tenant,
	count int) (chats []memory.Chat, total int, err error) {
	places, err := merged(ctx, s.core, tenant, Place{}, count, memory.KindChats, memory.KindCold)
	for _, p := range places {
		if chat, ok := p.Chat(tenant); ok {
			chats = append(chats, chat)
		} else if err == nil { // written by another program
			err = s.unlist(ctx, memory.KindChats, tenant, p.Member)
		}
	}
	if err == nil {
		total, err = counted(ctx, s.core, s.chatLists(tenant)...)
	}
	return chats, total, failure(err, "listing the chats of the tenant %s", tenant)
}

// ForgetChat removes a chat from its tenant's lists.
func (s Tenants) ForgetChat(ctx context.Context, chat memory.Chat) error {
	err := s.unlist(ctx, memory.KindChats, chat.Tenant(), chat.ID())
	if err == nil {
		err = unlistCold(ctx, s.core, chat)
	}
	return failure(err, "taking chat %s off the list", chat)
}

// Users returns up to count users of a tenant from offset on, and the number of its users. The default tenant lists no
// users.
func (s Tenants) Users(ctx context.Context, tenant memory.Tenant, offset, count int) (users []memory.User, total int,
	err error) {
	key := memory.ListKey(memory.KindUsers, tenant)
	var page *redis.StringSliceCmd
	var number *redis.IntCmd
	_, err = redisscript.Pipe(ctx, s.redis, func(p redis.Pipeliner) {
		page, number = p.ZRange(ctx, key, int64(offset), int64(offset+count-1)), p.ZCard(ctx, key)
	})
	if err != nil {
		return nil, 0, failure(err, "listing the users of the tenant %s", tenant)
	}
	for _, id := range page.Val() {
		if u, bad := tenant.User(id); bad == nil {
			users = append(users, u)
		}
	}
	return users, int(number.Val()), nil
}

// ForgetUser removes a user from the tenant's list, with the list of the user's chats. Call it after the notes are
// erased.
func (s Tenants) ForgetUser(ctx context.Context, u memory.User) error {
	err := s.redis.Unlink(ctx, userChatsKey(u)).Err()
	if err == nil { // the tenant's list last, because it leads to the user's
		err = s.redis.ZRem(ctx, memory.ListKey(memory.KindUsers, u.Tenant()), u.ID()).Err()
	}
	return failure(err, "forgetting the user %s", u)
}

// Forget removes a tenant's lists, which must have become empty, and then ends its erasure.
func (s Tenants) Forget(ctx context.Context, tenant memory.Tenant) error {
	for _, kind := range []memory.Kind{memory.KindWaits, memory.KindChats, memory.KindCold, memory.KindUsers,
		memory.KindStored} {
		if err := s.forget(ctx, memory.Chat{}, s.listKeys(kind, tenant), nil); err != nil {
			return failure(err, "removing the lists of the tenant %s", tenant)
		}
	}
	for _, list := range []memory.Kind{memory.KindTenants, memory.KindErasing} {
		if err := s.redis.ZRem(ctx, string(list), tenant.String()).Err(); err != nil {
			return failure(err, "taking the tenant %s off the list", tenant)
		}
	}
	return nil
}
