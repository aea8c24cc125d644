package embedded

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
)

// runID identifies this process's store, in the form that Redis has: 40 hex digits.
var runID = func() string {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // it never fails
	return hex.EncodeToString(id)
}()

// info is the reply to INFO: all sections, or those that are named.
func (s *Server) info(sections []string) string {
	var keys int
	if s.engine != nil {
		keys = s.engine.keyCount()
	}
	s.connMu.Lock()
	connected := len(s.clients)
	s.connMu.Unlock()
	writes := "ok"
	if s.broken != nil {
		writes = strings.Join(strings.Fields("refused: "+s.broken.Error()), " ")
	}

	var out strings.Builder
	// wanted says whether INFO was asked for a section.
	included := func(section string) bool {
		return len(sections) == 0 || slices.ContainsFunc(sections, func(name string) bool {
			name = strings.ToLower(name)
			return name == strings.ToLower(section) || name == "all" || name == "default" || name == "everything"
		})
	}
	for _, section := range []struct{ name, text string }{
		{"Server", fmt.Sprintf("server_name:mneme embedded store, for one process; set redis.url to use a real Redis\r\n"+
			"redis_version:7.0.0\r\nredis_mode:standalone\r\nprocess_id:%d\r\nrun_id:%s\r\n", os.Getpid(), runID)},
		{"Clients", fmt.Sprintf("connected_clients:%d\r\n", connected)},
		{"Memory", "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"},
		{"Persistence", fmt.Sprintf("loading:0\r\njournal_bytes:%d\r\njournal_live_bytes:%d\r\njournal_writes:%s\r\n",
			s.journal.Size(), s.live, writes)},
		{"Replication", "role:master\r\nconnected_slaves:0\r\n"},
		{"Keyspace", fmt.Sprintf("db0:keys=%d\r\n", keys)},
	} {
		if included(section.name) {
			fmt.Fprintf(&out, "# %s\r\n%s\r\n", section.name, section.text)
		}
	}
	return out.String()
}
