package runs

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/webmemory/node"
)

// Webhooks notifies approvals.webhook of waiting runs. No run waits for the notification.
type Webhooks struct {
	*node.Core
	Webhook *http.Client
}

// Headers of a webhook request. The timestamp is in Unix seconds. The signature is "sha256=" with the hex HMAC-SHA256
// of the timestamp, a dot and the body.
const (
	WebhookTimestamp = "Mneme-Timestamp"
	WebhookSignature = "Mneme-Signature"
)

// WebhookBody is the body of a webhook request for a waiting run.
type WebhookBody struct {
	Tenant  memory.Tenant `json:"tenant,omitzero"` // tenant of the chat; omitted for the default tenant
	ChatID  memory.Chat   `json:"chat_id"`
	RunID   string        `json:"run_id"`
	Pending []WebhookWait `json:"waits"`
}

// WebhookWait is one wait in a WebhookBody.
type WebhookWait struct {
	ID        string       `json:"id"`
	Kind      string       `json:"kind"`
	Subagent  memory.Agent `json:"subagent,omitempty"`
	Tool      string       `json:"tool"`
	ExpiresAt float64      `json:"expires_at"`
}

// Timing of webhook requests.
const (
	webhookAnswers = 10 * time.Second // timeout of one request
	webhookFirst   = time.Second      // delay before the second try; doubles for each further one
	webhookTries   = 8                // over about four minutes
)

// tellWebhook sends a run's waits to the webhook in the background. It gives up after webhookTries, at the process's
// end, or when the webhook rejects the request.
func (s *Webhooks) tellWebhook(chat memory.Chat, run string, pending []event.Wait) {
	if s.Cfg.Webhook.URL == "" || len(pending) == 0 {
		return
	}
	payload := WebhookBody{Tenant: chat.Tenant(), ChatID: chat, RunID: run}
	for _, w := range pending {
		payload.Pending = append(payload.Pending, WebhookWait{w.ID, w.Kind, w.Subagent, w.Tool, w.ExpiresAt})
	}
	body, err := json.Marshal(payload)
	if err != nil {
		return // plain structs always encode
	}
	s.Workers.Go(func() {
		for try, wait := 1, webhookFirst; ; try, wait = try+1, 2*wait {
			retry, err := s.callWebhook(s.Life, body)
			if err == nil {
				s.Metrics.Webhook.WithLabelValues("told").Inc()
				return
			}
			if !retry || try == webhookTries || node.Pause(s.Life, node.Jitter(wait)) != nil {
				s.Metrics.Webhook.WithLabelValues("failed").Inc()
				s.Log.Warn().Err(err).Str("run", run).Msg("approvals.webhook was not told what a run waits for")
				return
			}
		}
	})
}

// callWebhook sends one request. retry reports whether another request may succeed.
func (s *Webhooks) callWebhook(ctx context.Context, body []byte) (retry bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, webhookAnswers)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Cfg.Webhook.URL, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(s.Cfg.Webhook.Secret))
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(WebhookTimestamp, timestamp)
	req.Header.Set(WebhookSignature, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := s.Webhook.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
	if resp.StatusCode/100 == 2 {
		return false, nil
	}
	return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests,
		fmt.Errorf("it answered with %s", resp.Status)
}

// NewWebhookClient returns a client that follows no redirects, so only the configured URL is notified.
func NewWebhookClient() *http.Client {
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute},
		CheckRedirect: telemetry.NoRedirect}
}
