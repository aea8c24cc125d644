package app_test

import (
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

// TestABudgetHoldsOverGateways: four gateways, many more calls at once than a budget has room for. Then one is killed
// with 50 calls in flight. The limiters alone are asked by 1,000 calls each in access/limit.
func TestABudgetHoldsOverGateways(t *testing.T) {
	if testing.Short() {
		t.Skip("four gateways and hundreds of calls")
	}
	t.Parallel()
	const callsAtOnce = 150 // at each
	answer := fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text",`+
		`"text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":88}}`, estimatedCall-88)
	var stuck atomic.Bool
	held := make(chan struct{}, 64)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if stuck.Load() {
			held <- struct{}{}
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer vendor.Close()
	redis := redistest.Start(t)
	var gateways []*stack
	for range 4 {
		s := newStack(t, "MNEME_REDIS_URL="+redis.URL(), "MNEME_PROXY_ACTIVE=claude",
			"MNEME_PROXY_BACKENDS_CLAUDE_KIND=anthropic", "MNEME_PROXY_BACKENDS_CLAUDE_BASE_URL="+vendor.URL,
			"MNEME_BUDGETS_LEASE=5s", fmt.Sprintf("MNEME_LIMITS_TENANTS_DEFAULT_BUDGET=%dtokens/total", 100*estimatedCall))
		s.start("proxy", s.setting("MNEME_PROXY_LISTEN"))
		gateways = append(gateways, s)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	ask := func(s *stack, body string) (int, error) {
		resp, err := client.Post("http://"+s.setting("MNEME_PROXY_LISTEN")+"/v1/messages", "application/json",
			strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	for _, s := range gateways {
		for range callsAtOnce {
			all.Go(func() {
				for { // under such a load Redis may be late; then nothing is reserved, and the caller tries again
					status, err := ask(s, limitedCall)
					switch {
					case !assert.NoError(t, err):
					case status == http.StatusOK:
						admitted.Add(1)
					case status == http.StatusTooManyRequests:
						refused.Add(1)
					case status == http.StatusServiceUnavailable:
						continue
					default:
						assert.Fail(t, "an answer of another kind", status)
					}
					return
				}
			})
		}
	}
	all.Wait()
	require.Equal(t, [2]int64{100, 4*callsAtOnce - 100}, [2]int64{admitted.Load(), refused.Load()})

	// The books are asked for by a call that is larger than the budget, which ends the reservations that ran out.
	books := func() [2]string {
		status, err := ask(gateways[1], strings.Replace(limitedCall, "88", "1000000", 1))
		require.NoError(t, err)
		require.NotEqual(t, http.StatusOK, status)
		got, err := redis.Client().HGetAll(t.Context(), limit.Prefix+"{default}:total").Result()
		require.NoError(t, err)
		return [2]string{got["tenant:default:tokens"], got["tenant:default:tokens:held"]}
	}
	spent := strconv.FormatInt(100*estimatedCall, 10)
	require.Eventually(t, func() bool { return books() == [2]string{spent, "0"} }, 30*time.Second, 20*time.Millisecond)

	require.NoError(t, redis.Client().Del(t.Context(), limit.Prefix+"{default}:total").Err()) // a new budget
	stuck.Store(true)
	for range 50 {
		all.Go(func() {
			_, err := ask(gateways[0], limitedCall)
			assert.Error(t, err)
		})
	}
	for range 50 {
		<-held
	}
	gateways[0].kill("proxy")
	all.Wait()
	spent = strconv.FormatInt(50*estimatedCall, 10)
	require.Eventually(t, func() bool { return books() == [2]string{spent, "0"} }, 60*time.Second, 100*time.Millisecond)
	stuck.Store(false)
	for range 50 { // the other half of the budget is free
		status, err := ask(gateways[2], limitedCall)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
	}
	status, err := ask(gateways[3], limitedCall)
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, status)
}
