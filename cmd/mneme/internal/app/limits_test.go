package app_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/access/limit"
	"mneme/internal/redistest"
	"mneme/proxy/usage"
)

// limitedCall takes what estimatedCall says, and the vendor of TestABudgetHoldsOverGateways counts just that.
const limitedCall = `{"model":"m","max_tokens":88,"messages":[{"role":"user","content":"hello"}]}`

var estimatedCall = usage.EstimateInput([]byte(limitedCall)) + 88

// budgeted are four gateways over one Redis, in front of a vendor with answers that take what is estimated.
type budgeted struct {
	t        *testing.T
	redis    *redistest.Server
	gateways []*stack
	client   *http.Client
	stuck    atomic.Bool   // the vendor answers no more
	held     chan struct{} // has an element for each call that it holds then
}

// newBudgeted has gateways reach Redis at an address, with a budget for so many calls in the default tenant.
func newBudgeted(t *testing.T, redis *redistest.Server, addr string, calls int64) *budgeted {
	b := &budgeted{t: t, redis: redis, held: make(chan struct{}, 64),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
	answer := fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text",`+
		`"text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":88}}`, estimatedCall-88)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if b.stuck.Load() {
			b.held <- struct{}{}
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(vendor.Close)
	for range 4 {
		s := newStack(t, "MNEME_REDIS_URL=redis://"+addr, "MNEME_PROXY_ACTIVE=claude",
			backend("claude", "anthropic", vendor.URL),
			"MNEME_BUDGETS_LEASE=5s",
			fmt.Sprintf("MNEME_LIMITS_TENANTS={default: {budget: %dtokens/total}}", calls*estimatedCall))
		s.start("proxy")
		b.gateways = append(b.gateways, s)
	}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// ask makes a call and gives its status.
func (b *budgeted) ask(s *stack, body string) (int, error) {
	resp, err := b.client.Post("http://"+s.setting("MNEME_PROXY_LISTEN")+"/v1/messages", "application/json",
		strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// crowd makes calls at each gateway, so many of them at once, and says how many were admitted and refused.
func (b *budgeted) crowd(calls, atOnce int) [2]int64 {
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	for _, s := range b.gateways {
		for i := range atOnce {
			all.Go(func() {
				for n := i; n < calls; {
					status, err := b.ask(s, limitedCall)
					switch {
					case !assert.NoError(b.t, err):
						return
					case status == http.StatusOK:
						admitted.Add(1)
					case status == http.StatusTooManyRequests:
						refused.Add(1)
					case status == http.StatusServiceUnavailable: // Redis's reply was lost or late: nothing is reserved
						continue
					default:
						assert.Fail(b.t, "an answer of another kind", status)
						return
					}
					n += atOnce
				}
			})
		}
	}
	all.Wait()
	return [2]int64{admitted.Load(), refused.Load()}
}

// settles waits until so many calls are charged and nothing is held. The books are asked for by a call that is larger
// than the budget, which ends the reservations that ran out.
func (b *budgeted) settles(calls int64) {
	b.t.Helper()
	spent := strconv.FormatInt(calls*estimatedCall, 10)
	var got map[string]string
	require.Eventually(b.t, func() bool {
		_, err := b.ask(b.gateways[1], strings.Replace(limitedCall, "88", "100000000", 1))
		require.NoError(b.t, err)
		got, err = b.redis.Client().HGetAll(b.t.Context(), limit.Prefix+"{default}:total").Result()
		require.NoError(b.t, err)
		return got["tenant:default:tokens"] == spent && got["tenant:default:tokens:held"] == "0"
	}, 90*time.Second, 50*time.Millisecond, "%s %v", spent, &got)
}

// aBudgetHoldsOverGateways has many more calls come at once, at each of four gateways, than a budget has room for. Then
// one is killed with 50 calls in flight.
func aBudgetHoldsOverGateways(t *testing.T, calls int) {
	redis := redistest.Start(t)
	b := newBudgeted(t, redis, redis.Addr, 100)
	require.Equal(t, [2]int64{100, int64(4*calls) - 100}, b.crowd(calls, calls))
	b.settles(100)

	require.NoError(t, redis.Client().Del(t.Context(), limit.Prefix+"{default}:total").Err()) // a new budget
	b.stuck.Store(true)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			_, err := b.ask(b.gateways[0], limitedCall)
			assert.Error(t, err)
		})
	}
	for range 50 {
		<-b.held
	}
	b.gateways[0].kill("proxy")
	all.Wait()
	b.settles(50)
	b.stuck.Store(false)
	for range 50 { // the other half of the budget is free
		status, err := b.ask(b.gateways[2], limitedCall)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
	}
	status, err := b.ask(b.gateways[3], limitedCall)
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, status)
}

// TestLostRepliesDriftNothingOverGateways: of the verdicts of Redis one in ten never reaches its gateway.
func TestLostRepliesDriftNothingOverGateways(t *testing.T) {
	if testing.Short() {
		t.Skip("four gateways and hundreds of calls")
	}
	t.Parallel()
	redis := redistest.Start(t)
	addr, lost := redis.Lossy(t, 0.1, func(reply []byte) bool {
		return bytes.Contains(reply, []byte("$2\r\nok\r\n")) || bytes.Contains(reply, []byte("refused\r\n")) ||
			bytes.Contains(reply, []byte("repeated\r\n"))
	})
	b := newBudgeted(t, redis, addr, 300)
	require.Equal(t, [2]int64{300, 100}, b.crowd(100, 5))
	b.settles(300)
	require.Greater(t, lost.Load(), int64(20))
}
