package jsonrpc_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/proxy/copilot/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ear keeps what the peer says on its own.
type ear struct {
	mu            sync.Mutex
	notifications []string
	late          []string
	heard         chan struct{} // a token for each
}

func (e *ear) note(list *[]string, what string, raw jsontext.Value) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*list = append(*list, what+" "+string(raw))
	e.heard <- struct{}{}
}

func (e *ear) Notify(_ *jsonrpc.Conn, method string, params jsontext.Value) {
	e.note(&e.notifications, method, params)
}

func (e *ear) Request(c *jsonrpc.Conn, id jsonrpc.ID, method string, params jsontext.Value) bool {
	if method != "known" {
		return false
	}
	return c.Reply(id, params, nil)
}

func (e *ear) Late(_ *jsonrpc.Conn, method string, result jsontext.Value) {
	e.note(&e.late, method, result)
}

// peer is the other side, by hand.
type peer struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

// sent is a message that the peer got.
type sent struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *jsonrpc.Error  `json:"error"`
}

func (p *peer) read() sent {
	p.t.Helper()
	var m sent
	require.NoError(p.t, jsonrpc2.VSCodeObjectCodec{}.ReadObject(p.in, &m))
	return m
}

func (p *peer) say(body string) { p.raw(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)) }

func (p *peer) raw(s string) {
	_, err := io.WriteString(p.Conn, s)
	require.NoError(p.t, err)
}

func connect(t testing.TB, config jsonrpc.Config) (*jsonrpc.Conn, *peer, *ear) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	near, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	far, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return over(t, near, far, config)
}

func over(t testing.TB, near, far net.Conn, config jsonrpc.Config) (*jsonrpc.Conn, *peer, *ear) {
	e := &ear{heard: make(chan struct{}, 1000)}
	c := jsonrpc.New(near, e, config)
	t.Cleanup(func() { _ = c.Close(); _ = far.Close() })
	return c, &peer{Conn: far, t: t, in: bufio.NewReader(far)}, e
}

// calling makes a call; its error and result come over the channels.
func calling(ctx context.Context, c *jsonrpc.Conn) (result chan string, failed chan error) {
	result, failed = make(chan string, 1), make(chan error, 1)
	go func() {
		var raw jsontext.Value
		err := c.Call(ctx, "ask", struct{}{}, &raw)
		result <- string(raw)
		failed <- err
	}()
	return result, failed
}

func TestAnswersOfEveryShape(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		result string
		check  func(t *testing.T, err error)
	}{
		"a result":         {`"result":{"a":1}`, `{"a":1}`, func(t *testing.T, err error) { require.NoError(t, err) }},
		"null is a result": {`"result":null`, ``, func(t *testing.T, err error) { require.NoError(t, err) }},
		"an error":         {`"error":{"code":-32603,"message":"no"}`, ``, refused},
		"both":             {`"result":{},"error":{"code":-32603,"message":"no"}`, ``, refused},
		"neither": {`"jsonrpc":"2.0"`, ``, func(t *testing.T, err error) {
			require.ErrorIs(t, err, jsonrpc.ErrProtocol)
		}},
		"a null error":      {`"result":1,"error":null`, `1`, func(t *testing.T, err error) { require.NoError(t, err) }},
		"error with detail": {`"error":{"code":-32603,"message":"no","data":{"x":[1]}}`, ``, refused},
	} {
		t.Run(name, func(t *testing.T) {
			conn, p, _ := connect(t, jsonrpc.Config{})
			result, failed := calling(t.Context(), conn)
			p.say(fmt.Sprintf(`{"id":%s,%s}`, p.read().ID, c.answer))
			require.Equal(t, c.result, <-result)
			c.check(t, <-failed)
			require.Zero(t, conn.Stats().Pending)
		})
	}
}

func refused(t *testing.T, err error) {
	var e *jsonrpc.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, jsonrpc.Error{Code: -32603, Message: "no", Method: "ask"}, *e)
}

func TestStrayAnswersHarmNobody(t *testing.T) {
	conn, p, e := connect(t, jsonrpc.Config{})
	result, failed := calling(t.Context(), conn)
	id := string(p.read().ID)
	p.say(`{"id":999,"result":{}}`)
	p.say(`{"id":"` + id + `","result":"a string is not our id"}`)
	p.say(`{"id":null,"error":{"code":-32700,"message":"parse error"}}`)
	p.say(`{"id":null}`)
	p.say(`{"id":` + id + `,"result":"mine"}`)
	p.say(`{"id":` + id + `,"result":"again"}`)
	p.say(`{"method":"end"}`)
	require.Equal(t, `"mine"`, <-result)
	require.NoError(t, <-failed)
	<-e.heard
	s := conn.Stats()
	require.EqualValues(t, 3, s.Unknown)
	require.EqualValues(t, 2, s.Anonymous)
	require.Zero(t, s.Late)
}

func TestAnswerAfterTheCallerHasGone(t *testing.T) {
	conn, p, e := connect(t, jsonrpc.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	_, failed := calling(ctx, conn)
	id := p.read().ID
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Zero(t, conn.Stats().Pending)
	p.say(fmt.Sprintf(`{"id":%s,"result":{"made":true}}`, id))
	<-e.heard
	require.Equal(t, []string{`ask {"made":true}`}, e.late)
	p.say(fmt.Sprintf(`{"id":%s,"result":{"made":true}}`, id))
	p.say(`{"method":"end"}`)
	<-e.heard
	require.EqualValues(t, 1, conn.Stats().Late)
	require.EqualValues(t, 1, conn.Stats().Unknown)
}

// Only so many given-up calls are remembered; older ones are strangers.
func TestGivenUpCallsCostBoundedMemory(t *testing.T) {
	conn, p, e := connect(t, jsonrpc.Config{})
	var first json.RawMessage
	for i := range 1500 {
		ctx, cancel := context.WithCancel(t.Context())
		_, failed := calling(ctx, conn)
		if id := p.read().ID; i == 0 {
			first = id
		}
		cancel()
		require.Error(t, <-failed)
	}
	p.say(fmt.Sprintf(`{"id":%s,"result":{}}`, first))
	p.say(`{"method":"end"}`)
	<-e.heard
	require.EqualValues(t, 1, conn.Stats().Unknown)
}

func TestFramesWithoutAMessageAreSkipped(t *testing.T) {
	conn, p, e := connect(t, jsonrpc.Config{})
	for _, body := range []string{`{"id":1,`, `"text"`, `[{"method":"a"}]`, `{}`, "{\"method\":\"\xff\"}", `{"method":5}`,
		`null`} {
		p.say(body)
	}
	p.say(`{"method":"after","params":{"π":"…"}}`)
	<-e.heard
	require.Equal(t, []string{`after {"π":"…"}`}, e.notifications)
	require.EqualValues(t, 7, conn.Stats().Skipped)
}

func TestARunOfFramesWithoutAMessageEndsTheConnection(t *testing.T) {
	conn, p, _ := connect(t, jsonrpc.Config{})
	p.raw(strings.Repeat("Content-Length: 2\r\n\r\n[]", 16))
	<-conn.Done()
	require.ErrorIs(t, conn.Err(), jsonrpc.ErrProtocol)
	require.ErrorIs(t, conn.Err(), jsonrpc.ErrTransportClosed)
}

func TestFramesAboveTheBound(t *testing.T) {
	for name, stream := range map[string]string{
		"promised": "Content-Length: 2147483648\r\n\r\n",
		"sent":     "Content-Length: 41943040\r\n\r\n" + strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			conn, p, _ := connect(t, jsonrpc.Config{})
			result, failed := calling(t.Context(), conn)
			p.read()
			_, _ = io.WriteString(p.Conn, stream)
			require.ErrorIs(t, <-failed, jsonrpc.ErrFrameTooLarge)
			require.Empty(t, <-result)
			require.ErrorIs(t, conn.Err(), jsonrpc.ErrTransportClosed)
		})
	}
}

func TestACallAboveTheBoundFailsAlone(t *testing.T) {
	conn, p, _ := connect(t, jsonrpc.Config{MaxFrame: 1000})
	err := conn.Call(t.Context(), "ask", strings.Repeat("x", 1000), nil)
	require.ErrorIs(t, err, jsonrpc.ErrFrameTooLarge)
	_, failed := calling(t.Context(), conn)
	p.say(fmt.Sprintf(`{"id":%s,"result":1}`, p.read().ID))
	require.NoError(t, <-failed)
}

func TestManyFramesInOneRead(t *testing.T) {
	_, p, e := connect(t, jsonrpc.Config{})
	var stream strings.Builder
	var want []string
	for i := range 500 {
		body := fmt.Sprintf(`{"method":"n","params":%d}`, i)
		fmt.Fprintf(&stream, "Content-Length: %d\r\n\r\n%s", len(body), body)
		want = append(want, fmt.Sprintf("n %d", i))
	}
	p.raw(stream.String())
	for range want {
		<-e.heard
	}
	require.Equal(t, want, e.notifications)
}

func TestEndInTheMiddleOfAFrame(t *testing.T) {
	conn, p, _ := connect(t, jsonrpc.Config{})
	p.raw("Content-Length: 100\r\n\r\n{\"method\":")
	require.NoError(t, p.Close())
	<-conn.Done()
	require.ErrorIs(t, conn.Err(), io.ErrUnexpectedEOF)
	require.ErrorIs(t, conn.Call(t.Context(), "ask", nil, nil), jsonrpc.ErrTransportClosed)
}

func TestTheLastAnswerBeforeTheEndIsDelivered(t *testing.T) {
	for range 50 {
		conn, p, _ := connect(t, jsonrpc.Config{})
		result, failed := calling(t.Context(), conn)
		p.say(fmt.Sprintf(`{"id":%s,"result":"last words"}`, p.read().ID))
		require.NoError(t, p.Close())
		require.Equal(t, `"last words"`, <-result)
		require.NoError(t, <-failed)
	}
}

func TestCallsByThePeer(t *testing.T) {
	conn, p, _ := connect(t, jsonrpc.Config{})
	for _, id := range []string{`1`, `"one"`} {
		p.say(`{"id":` + id + `,"method":"known","params":{"x":1}}`)
		m := p.read()
		require.JSONEq(t, id, string(m.ID))
		require.JSONEq(t, `{"x":1}`, string(m.Result))
		p.say(`{"id":` + id + `,"method":"hooks.invoke","params":{}}`)
		m = p.read()
		require.JSONEq(t, id, string(m.ID))
		require.Equal(t, -32601, m.Error.Code)
	}
	require.EqualValues(t, 2, conn.Stats().Refused)
}

// The peer's ids are not ours: its request 1 does not touch our call 1.
func TestIdsOfTheTwoDirectionsAreApart(t *testing.T) {
	conn, p, _ := connect(t, jsonrpc.Config{})
	result, failed := calling(t.Context(), conn)
	id := p.read().ID
	p.say(fmt.Sprintf(`{"id":%s,"method":"known","params":{}}`, id))
	p.read()
	p.say(fmt.Sprintf(`{"id":%s,"result":"ours"}`, id))
	require.Equal(t, `"ours"`, <-result)
	require.NoError(t, <-failed)
}

// A peer that asks and never reads fills only the queue of the writer: the reader
// goes on, and so does what it hears.
func TestAPeerThatAsksWithoutReading(t *testing.T) {
	near, far := net.Pipe() // no buffer: the first reply hangs
	conn, p, e := over(t, near, far, jsonrpc.Config{MaxQueue: 10})
	for i := range 100 {
		p.say(fmt.Sprintf(`{"id":%d,"method":"unknown"}`, i))
	}
	p.say(`{"method":"still heard"}`)
	<-e.heard
	s := conn.Stats()
	require.EqualValues(t, 100, s.Refused)
	require.GreaterOrEqual(t, s.Dropped, uint64(89))
}

func TestAWriteThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		conn, _, _ := over(t, near, far, jsonrpc.Config{WriteTimeout: 10 * time.Second})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		// The frame is with the writer, so its end is not ours to decide: no half of
		// it may stay in the stream.
		require.ErrorIs(t, conn.Call(ctx, "torn", nil, nil), context.DeadlineExceeded)
		require.NoError(t, conn.Err())
		// The next one has not begun and goes without a trace.
		next, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, conn.Call(next, "unsent", nil, nil), jsonrpc.ErrUnsent)
		<-conn.Done()
		require.ErrorIs(t, conn.Err(), jsonrpc.ErrTransportClosed)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Zero(t, conn.Stats().Pending)
	})
}

func TestACancelledCallDoesNotTearItsFrame(t *testing.T) {
	near, far := net.Pipe()
	conn, p, _ := over(t, near, far, jsonrpc.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	_, failed := calling(ctx, conn)
	b, err := p.in.Peek(1) // the writer is in the middle of it
	require.NoError(t, err)
	require.Equal(t, "C", string(b))
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Equal(t, "ask", p.read().Method)
	_, failed = calling(t.Context(), conn)
	p.say(fmt.Sprintf(`{"id":%s,"result":1}`, p.read().ID))
	require.NoError(t, <-failed)
}

func TestCloseEndsEveryCall(t *testing.T) {
	conn, p, _ := connect(t, jsonrpc.Config{})
	var failures []chan error
	for range 20 {
		_, failed := calling(t.Context(), conn)
		failures = append(failures, failed)
		p.read()
	}
	require.NoError(t, conn.Close())
	require.NoError(t, conn.Close())
	for _, failed := range failures {
		require.ErrorIs(t, <-failed, jsonrpc.ErrStopped)
	}
	require.Zero(t, conn.Stats().Pending)
	require.ErrorIs(t, conn.Call(t.Context(), "ask", nil, nil), jsonrpc.ErrStopped)
}

func TestAResultOfAnotherShape(t *testing.T) {
	conn, p, _ := connect(t, jsonrpc.Config{})
	failed := make(chan error, 1)
	go func() {
		var n int
		failed <- conn.Call(t.Context(), "ask", nil, &n)
	}()
	p.say(fmt.Sprintf(`{"id":%s,"result":"text"}`, p.read().ID))
	require.ErrorIs(t, <-failed, jsonrpc.ErrProtocol)
}
