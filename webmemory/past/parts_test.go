package past_test

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/webmemory"
)

// monitorRedis returns the commands that Redis gets while do runs.
func monitorRedis(t *testing.T, w *webmemorytest.World, do func()) (commands []string) {
	conn, err := net.Dial("tcp", w.RedisServer.Addr)
	require.NoError(t, err)
	defer conn.Close()
	lines := bufio.NewReaderSize(conn, 1<<20)
	next := func() string {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		return line
	}
	_, err = fmt.Fprint(conn, "MONITOR\r\n")
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", next())
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
		w.Redis.Echo(t.Context(), "the end of "+t.Name())
	}()
	for {
		if line := next(); !strings.Contains(line, "the end of "+t.Name()) {
			commands = append(commands, line)
			continue
		}
		<-done
		return commands
	}
}

// readUnder counts the segments of a chat's archives that were read, and those of them that were while its turn was
// held.
func readUnder(chat string, commands []string) (all, held int) {
	turn, archive, holds := `"{chat_history:`+chat+`}:turn"`, `:`+chat+`}:archive"`, false
	for _, line := range commands {
		switch {
		case strings.Contains(line, `lua] "SET" `+turn):
			holds = true
		case strings.Contains(line, `lua] "DEL" `+turn):
			holds = false
		case strings.Contains(line, `"hmget"`) && strings.Contains(line, archive):
			_, fields, _ := strings.Cut(line, archive)
			for _, field := range strings.Fields(fields) {
				if _, err := strconv.Atoi(strings.Trim(field, `"`)); err == nil {
					if all++; holds {
						held++
					}
				}
			}
		}
	}
	return all, held
}

// What takes something out of a long chat, or copies it, reads the chat before it takes its turn, and after it:
// under the turn no more than what changes, however long the chat is.
func TestLittleIsReadUnderTheTurn(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 20 })
	const exchanges = 12_000
	status, body := w.Do("POST", "/v1/chats/long/import", webmemorytest.ExportLines(exchanges, 10)).Text()
	require.Equal(t, 201, status, body)
	n, err := w.Redis.HLen(t.Context(), "{chat_history:long}:archive").Result()
	require.NoError(t, err)
	segments := int(n/2 - 1)
	require.Greater(t, segments, 80)

	for _, act := range []struct {
		name, method, path, body string
		most                     int
	}{
		{"redact a message", "DELETE", "/messages/s1:100?scope=message", "", 2},
		{"redact an exchange", "DELETE", "/messages/s1:200", "", 2},
		{"fork", "POST", "/fork", `{"as":"other"}`, 0},
		{"fork at a message", "POST", "/fork", `{"as":"third","at":"s1:100"}`, 0},
		{"rewind", "POST", "/rewind", fmt.Sprintf(`{"to":"x.%d"}`, exchanges-2), 32}, // which fills what is at hand
	} {
		t.Run(act.name, func(t *testing.T) {
			commands := monitorRedis(t, w, func() {
				status, body = w.Do(act.method, "/v1/chats/long"+act.path, act.body).Text()
			})
			require.Less(t, status, 300, body)
			require.Contains(t, strings.Join(commands, ""), `lua] "DEL" "{chat_history:long}:turn"`)
			all, held := readUnder("long", commands)
			require.GreaterOrEqual(t, all, segments, "this test sees what is read")
			require.LessOrEqual(t, held, act.most)
		})
	}
}
