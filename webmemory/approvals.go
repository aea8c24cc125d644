package webmemory

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
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// This file is about the persons that are to answer: the list of what all runs wait for, and
// the webhook that is told of each wait.

// Webhooks tells approvals.webhook of runs that wait. No run waits for it.
type Webhooks struct {
	*Core
	Webhook *http.Client
}

// GetApprovals is GET /v1/approvals.
func (s *Resumer) GetApprovals(c *gin.Context) error {
	limit, err := problem.Number(c, "limit", PageSize, 1, MaxPage)
	if err != nil {
		return err
	}
	if status := c.DefaultQuery("status", "open"); status != "open" {
		return problem.BadRequest("status is open, not %.40q: what was answered is in the events of its run.", status)
	}
	kind := c.Query("kind")
	if kinds := []string{event.Approval, event.Question, event.ClientResult}; kind != "" && !slices.Contains(kinds, kind) {
		return problem.BadRequest("kind is approval, question or client_result, not %.40q.", kind)
	}
	chats, waiting, next, err := s.Store.Suspensions.List(c.Request.Context(), problem.TenantOf(c), c.Query("cursor"),
		limit)
	if err != nil {
		return err
	}
	out := webapi.ApprovalList{Approvals: []webapi.ApprovalEntry{}, NextCursor: next}
	for i, w := range waiting {
		if s.NotErased(chats[i], &w.Rest) != nil {
			continue
		}
		pending, err := WaitsOf(w)
		if err != nil {
			continue // it cannot go on, and is ended by the next holder of the chat's lease
		}
		for _, wait := range pending {
			if kind == "" || wait.Kind == kind {
				out.Approvals = append(out.Approvals, webapi.ApprovalEntry{ChatID: chats[i], RunID: w.Run, Wait: wait})
			}
		}
	}
	slices.SortStableFunc(out.Approvals, func(a, b webapi.ApprovalEntry) int {
		return int(max(-1, min(1, a.ExpiresAt-b.ExpiresAt)))
	})
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// Webhook is told what runs wait for. It gets ids and the tool's name, and never arguments.
type Webhook struct {
	URL    string // "" for none
	Secret string // of the signature; never empty with a URL
}

// Headers of a request to a webhook: when it was made, in Unix seconds, and "sha256=" with the
// HMAC-SHA256 in hex of that, a dot and the body.
const (
	WebhookTimestamp = "Mneme-Timestamp"
	WebhookSignature = "Mneme-Signature"
)

// WebhookBody is what a webhook is told of a run that waits.
type WebhookBody struct {
	Tenant  memory.Tenant `json:"tenant,omitzero"` // whose chat it is; left out for the default one
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

// Times of telling a webhook.
const (
	webhookAnswers = 10 * time.Second // for one answer
	webhookFirst   = time.Second      // until the second try; twice as long until each further one
	webhookTries   = 8                // over about four minutes
)

// tellWebhook tells the webhook what a run waits for, which never holds the run up. It gives up
// after some tries, when the process ends, or when the webhook says that it will not have it.
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
		return // plain structs of ours
	}
	s.Workers.Go(func() {
		for try, wait := 1, webhookFirst; ; try, wait = try+1, 2*wait {
			retry, err := s.callWebhook(s.Life, body)
			if err == nil {
				s.Metrics.Webhook.WithLabelValues("told").Inc()
				return
			}
			if !retry || try == webhookTries || Pause(s.Life, Jitter(wait)) != nil {
				s.Metrics.Webhook.WithLabelValues("failed").Inc()
				s.Log.Warn().Err(err).Str("run", run).Msg("approvals.webhook was not told what a run waits for")
				return
			}
		}
	})
}

// callWebhook makes one request; again says whether another may have success.
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

// NewWebhookClient follows no redirects: only the configured URL is told.
func NewWebhookClient() *http.Client {
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute},
		CheckRedirect: telemetry.NoRedirect}
}
