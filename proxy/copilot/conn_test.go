package copilot_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/jsonrpc2"
	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/internal/testtier"
	"mneme/proxy/copilot"
)

// peer is a CLI that a test plays by hand, over a pipe without a buffer.
type peer struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

const greetingResult = `"result":{"protocolVersion":3,"version":"1.0.102"}`

// connectByHand greets a Router and returns the other end of its connection.
func connectByHand(t *testing.T, config copilot.RouterConfig) (*copilot.Router, *peer) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	require.NoError(t, far.SetDeadline(time.Now().Add(waitLimit)))
	p := &peer{Conn: far, t: t, in: bufio.NewReader(far)}
	go func() { p.answer(p.read(), greetingResult) }()
	router, err := copilot.NewRouter(t.Context(), near, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = router.Close() })
	return router, p
}

// read decodes the next frame with another implementation of the framing.
func (p *peer) read() copilottest.Message {
	var m copilottest.Message
	if err := (jsonrpc2.VSCodeObjectCodec{}).ReadObject(p.in, &m); err != nil {
		p.t.Error(err)
	}
	return m
}

func (p *peer) write(body string) { _, _ = p.Write(copilottest.Frame(body)) }

func (p *peer) answer(m copilottest.Message, members string) {
	p.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, *m.ID, members))
}

// del makes a call without a result in a goroutine.
func del(ctx context.Context, r *copilot.Router) chan error {
	failed := make(chan error, 1)
	go func() { failed <- r.Delete(ctx, "x") }()
	return failed
}

// The bytes on the wire do not depend on a library of either side.
func TestGoldenFrames(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	require.NoError(t, far.SetDeadline(time.Now().Add(waitLimit)))
	dialed := make(chan error, 1)
	go func() {
		router, err := copilot.NewRouter(t.Context(), near, copilot.RouterConfig{Token: "<ключ>"})
		if err == nil {
			t.Cleanup(func() { _ = router.Close() })
		}
		dialed <- err
	}()
	expect := func(frame string) {
		got := make([]byte, len(frame))
		_, err := io.ReadFull(far, got)
		require.NoError(t, err)
		require.Equal(t, frame, string(got))
	}
	expect("Content-Length: 75\r\n\r\n" + `{"id":0,"jsonrpc":"2.0","method":"connect","params":{"token":"<ключ>"}}`)
	greeting := "Content-Length: 70\r\n\r\n" + `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":3,"version":"é"}}`
	for _, b := range []byte(greeting) {
		_, err := far.Write([]byte{b})
		require.NoError(t, err)
	}
	require.NoError(t, <-dialed)
	_, err := io.WriteString(far, "Content-Length: 55\r\n\r\n"+`{"jsonrpc":"2.0","id":"one","method":"a.b","params":{}}`)
	require.NoError(t, err)
	expect("Content-Length: 85\r\n\r\n" +
		`{"id":"one","error":{"code":-32601,"message":"Unhandled method a.b"},"jsonrpc":"2.0"}`)
}

func TestHeadersThatAreFine(t *testing.T) {
	const body = `{"jsonrpc":"2.0","id":0,` + greetingResult + `}`
	for name, format := range map[string]string{
		"plain":         "Content-Length: %d\r\n\r\n",
		"lower case":    "content-length: %d\r\n\r\n",
		"no space":      "Content-Length:%d\r\n\r\n",
		"a type before": "Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: %d\r\n\r\n",
		"a type after":  "Content-Length: %d\r\nContent-Type: application/vscode-jsonrpc\r\n\r\n",
		"leading zeros": "Content-Length: 00%d\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			server := copilottest.Start(t)
			server.Handle("connect", func(c *copilottest.Conn, _ copilottest.Message) {
				c.Raw(fmt.Appendf(nil, format+"%s", len(body), body))
			})
			answers(t, begin(t, dial(t, server, copilot.RouterConfig{})), "x", "echo: x")
		})
	}
}

func TestFramesThatEndTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   error
	}{
		"garbage":                {"hello\r\n\r\n", copilot.ErrProtocol},
		"a length of letters":    {"Content-Length: abc\r\n\r\n{}", copilot.ErrProtocol},
		"zero":                   {"Content-Length: 0\r\n\r\n", copilot.ErrProtocol},
		"negative":               {"Content-Length: -2\r\n\r\n{}", copilot.ErrProtocol},
		"a sign":                 {"Content-Length: +2\r\n\r\n{}", copilot.ErrProtocol},
		"no digits":              {"Content-Length:\r\n\r\n{}", copilot.ErrProtocol},
		"missing":                {"Content-Type: x\r\n\r\n{}", copilot.ErrProtocol},
		"no header at all":       {"\r\n{}", copilot.ErrProtocol},
		"a header without end":   {"X: " + strings.Repeat("x", 1<<20), copilot.ErrTransportClosed},
		"too many non-messages":  {strings.Repeat("Content-Length: 2\r\n\r\n[]", 16), copilot.ErrProtocol},
		"a gigantic length":      {"Content-Length: 2147483648\r\n\r\n", copilot.ErrFrameTooLarge},
		"beyond integers":        {"Content-Length: 99999999999999999999999\r\n\r\n", copilot.ErrFrameTooLarge},
		"one byte too many":      {"Content-Length: 1025\r\n\r\n" + strings.Repeat("x", 1025), copilot.ErrFrameTooLarge},
		"an end in the header":   {"Content-Le", copilot.ErrTransportClosed},
		"an end before the body": {"Content-Length: 2\r\n\r\n", io.EOF},
		"an end in the body":     {"Content-Length: 3\r\n\r\n{}", io.ErrUnexpectedEOF},
		"an end between frames":  {"", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			router, p := connectByHand(t, copilot.RouterConfig{MaxFrame: 1024})
			failed := del(t.Context(), router)
			p.read()
			_, _ = io.WriteString(p, c.stream)
			require.NoError(t, p.Close())
			err := <-failed
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, err, copilot.ErrTransportClosed)
			require.ErrorContains(t, err, "session.delete: ")
		})
	}
}

func TestAnswersOfEveryShape(t *testing.T) {
	refused := &copilot.RPCError{Code: -32603, Message: "no", Method: "session.delete"}
	for name, c := range map[string]struct {
		answer string
		want   *copilot.RPCError
	}{
		"a result":          {`"result":{"a":1}`, nil},
		"null is a result":  {`"result":null`, nil},
		"a null error":      {`"result":1,"error":null`, nil},
		"an error":          {`"error":{"code":-32603,"message":"no"}`, refused},
		"both":              {`"result":{},"error":{"code":-32603,"message":"no"}`, refused},
		"error with detail": {`"error":{"code":-32603,"message":"no","data":{"x":[1]}}`, refused},
	} {
		t.Run(name, func(t *testing.T) {
			router, p := connectByHand(t, copilot.RouterConfig{})
			failed := del(t.Context(), router)
			p.answer(p.read(), c.answer)
			err := <-failed
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			var got *copilot.RPCError
			require.ErrorAs(t, err, &got)
			require.Equal(t, c.want, got)
			require.EqualError(t, err, "session.delete failed: no (code -32603)")
		})
	}
}

func TestAResultOfAnotherShape(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Handle("session.create", func(c *copilottest.Conn, m copilottest.Message) { c.Reply(m, "text") })
	_, err := router.Create(t.Context(), copilot.SessionConfig{})
	require.ErrorIs(t, err, copilot.ErrProtocol)
}

// Answers to no call and frames that are no messages do not disturb the call that waits.
func TestStrayFrames(t *testing.T) {
	router, p := connectByHand(t, copilot.RouterConfig{})
	failed := del(t.Context(), router)
	m := p.read()
	for _, body := range []string{
		`{"id":1,`, `"text"`, `[{"method":"a"}]`, `{}`, "{\"method\":\"\xff\"}", `{"method":5}`, `null`,
		`{"id":1.5,"result":1}`,
		`{"id":999,"result":{}}`, `{"id":"` + string(*m.ID) + `","result":{}}`, `{"id":null}`,
		`{"id":null,"error":{"code":-32700,"message":"parse error"}}`,
	} {
		p.write(body)
	}
	p.answer(m, `"result":{}`)
	p.answer(m, `"error":{"code":1,"message":"again"}`)
	require.NoError(t, <-failed)
	require.NoError(t, router.Err())
}

func TestTheLastAnswerBeforeTheEndIsDelivered(t *testing.T) {
	server := copilottest.Start(t)
	server.Handle("session.delete", func(c *copilottest.Conn, m copilottest.Message) {
		c.Reply(m, struct{}{})
		c.Close()
	})
	for range 50 {
		require.NoError(t, dial(t, server, copilot.RouterConfig{}).Delete(t.Context(), "x"))
	}
}

func TestACallAboveTheBoundFailsAlone(t *testing.T) {
	_, router := start(t, copilot.RouterConfig{MaxFrame: 2000})
	_, err := router.Create(t.Context(), copilot.SessionConfig{System: strings.Repeat("x", 2000)})
	require.ErrorIs(t, err, copilot.ErrFrameTooLarge)
	answers(t, begin(t, router), "x", "echo: x")
}

// The arguments reach the caller as the model wrote them.
func TestArgumentsAreNotRewritten(t *testing.T) {
	const arguments = `{"z":1.0,"a":"<b>","a":12345678901234567890}`
	server, router := start(t, copilot.RouterConfig{})
	server.Handle("session.send", func(c *copilottest.Conn, m copilottest.Message) {
		c.Reply(m, struct{}{})
		c.Raw(copilottest.Frame(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":%q,"event":`+
			`{"type":"external_tool.requested","data":{"requestId":"1","toolCallId":"1","toolName":"lookup","arguments":%s}}}}`,
			m.Session(), arguments)))
	})
	s := begin(t, router)
	require.NoError(t, s.Send(t.Context(), "x"))
	out, err := s.Stream(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, arguments, string(out.Calls[0].Arguments))
}

// A CLI that asks and never reads fills only the bounded number of replies. The reader goes on.
func TestACLIThatAsksWithoutReading(t *testing.T) {
	router, p := connectByHand(t, copilot.RouterConfig{})
	for i := range 3000 {
		p.write(fmt.Sprintf(`{"id":%d,"method":"unknown"}`, i))
	}
	require.NoError(t, router.Err())
}

func TestAWriteThatHangs(t *testing.T) {
	testtier.Slow(t)
	router, _ := connectByHand(t, copilot.RouterConfig{WriteTimeout: time.Second / 2})
	first, second := del(t.Context(), router), del(t.Context(), router)
	require.ErrorIs(t, <-first, copilot.ErrTransportClosed)
	require.ErrorIs(t, <-second, copilot.ErrTransportClosed)
	require.ErrorContains(t, router.Err(), "writing")
	require.Zero(t, router.Stats().Pending)
}

func TestACancelledCallDoesNotTearItsFrame(t *testing.T) {
	router, p := connectByHand(t, copilot.RouterConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := del(ctx, router)
	b, err := p.in.Peek(1) // the frame is partly written
	require.NoError(t, err)
	require.Equal(t, "C", string(b))
	waiting := del(ctx, router)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.ErrorIs(t, <-waiting, context.Canceled)
	require.Equal(t, "session.delete", p.read().Method)
	require.Equal(t, "session.delete", p.read().Method)
	failed = del(t.Context(), router)
	p.answer(p.read(), `"result":{}`)
	require.NoError(t, <-failed)
}

// Calls whose callers have gone cost memory until the CLI answers, so their number is bounded.
func TestACLIThatLeavesEveryCallUnanswered(t *testing.T) {
	server, router := start(t, copilot.RouterConfig{})
	server.Handle("session.delete", func(*copilottest.Conn, copilottest.Message) {})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1024 {
		require.ErrorIs(t, router.Delete(gone, "x"), context.Canceled)
	}
	answers(t, begin(t, router), "x", "echo: x")
	require.ErrorIs(t, router.Delete(gone, "x"), context.Canceled)
	<-router.Done()
	require.ErrorIs(t, router.Err(), copilot.ErrHangs)
}
