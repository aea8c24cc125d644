package memory

import (
	"math/bits"
	"strconv"
	"strings"
	"sync"
)

// The keys of a list in shards lie evenly over the slots of a Cluster. Shard k of any list is in the slot that has the
// 14 bits of k-1 in reverse, so that the first shards divide the slots evenly, however many they are; the number behind
// the # in a key is the smallest one of six digits that leads there. What key a shard has hangs on nothing else, so a
// list that gets more shards keeps those that it has.

// MaxShards is how many shards a list may have: as many as a Cluster has slots.
const MaxShards = 16384

// zeros are as long as a number behind the #.
const zeros = "\x00\x00\x00\x00\x00\x00"

// shardKey is the key of a shard, from 1 on, of the list in a key.
func shardKey(list string, shard int) string { return list + "#" + shardEnd(listSlot(list), shard) }

// listSlot is the slot that a list's keys would have with zeros behind the #.
func listSlot(list string) uint16 { return crc16(crc16(0, list), "#"+zeros) }

// shardEnd is the number behind the #. The checksum of a text is that of its front, shifted by its end, exclusive-or that
// of its end alone, so that one table of ends serves all lists.
func shardEnd(slot uint16, shard int) string {
	return shardSuffixes()[(slotOfShard(shard-1)^slot)%MaxShards]
}

// parseShardKey reads what shardKey wrote.
func parseShardKey(s string) (list string, shard int, ok bool) {
	list, _, ok = strings.Cut(s, "#")
	shard = 1 + int(slotOfShard(int(crc16(0, s)%MaxShards)))
	return list, shard, ok && shardKey(list, shard) == s
}

// slotOfShard reverses 14 bits.
func slotOfShard(n int) uint16 { return bits.Reverse16(uint16(n)) >> 2 }

// ends are the smallest numbers of six digits by the slot that each has alone.
var shardSuffixes = sync.OnceValue(func() []string {
	list := make([]string, MaxShards)
	for n, count := 1_000_000, 0; count < MaxShards; n++ {
		end := strconv.Itoa(n)[1:]
		if slot := crc16(0, end) % MaxShards; list[slot] == "" {
			list[slot] = end
			count++
		}
	}
	return list
})

// crc16 goes on with the checksum of a text by which Redis Cluster finds the slot of a key: CRC16 (XMODEM), as its
// specification says.
func crc16(crc uint16, text string) uint16 {
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			crc = crc<<1 ^ crc>>15*0x1021
		}
	}
	return crc
}
