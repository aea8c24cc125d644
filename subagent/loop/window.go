package loop

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"
	"sync"

	"mneme/memory"
	"mneme/memory/event"
)

// DefaultTokens is the context window of a model of which nothing is known, in tokens.
const DefaultTokens = 32_000

const (
	smallPrompt  = 3_000  // fits any model that can use tools, in tokens
	maxAnswer    = 16_384 // at most this much of a window is kept for the answer, in tokens
	minPrompt    = 256    // what is left for messages at least, in tokens
	maxShrinking = 4      // calls that are made again because the model refused the length
	maxScale     = 4      // how far a vendor's count may be above the estimate
)

// Windowed is a Model that knows its context window, prompt and answer together,
// in tokens; 0 if it does not.
type Windowed interface {
	ContextTokens(ctx context.Context) int
}

// TooLong is offered by the error of a model that refused a request for its
// length. Limit and sent are in tokens as the model counts them, 0 if it did not
// say; sent is the prompt. Window says that the limit is the model's context
// window, and not what an account may send in a minute.
type TooLong interface {
	error
	TooLong() (limit, promptTokens int, window, ok bool)
}

// Window is a Model that shows another one no more than it can read, see fit. When
// the model refuses a request for its length all the same, the request is cut
// further and sent again, and what that taught is remembered: the model's real
// limit, and by how much it counts more than the estimate. What a call has used that
// broke off inside its answer is estimated. Safe for concurrent use.
type Window struct {
	Model  Model
	Tokens int // of the context window; 0: what the Model says, see Windowed, else DefaultTokens
	Answer int // kept of it for the answer, in tokens; 0: a quarter, at most 16,384
	// MaxAnswer bounds an answer, in bytes of its JSON in an event; 0: none. A longer one ends with event.AnswerTooLong.
	MaxAnswer int

	mu          sync.Mutex
	modelTokens int     // what the Model said of its window when the rest was learned; guarded by mu
	limit       int     // its window as refusals showed it; 0 for none yet; guarded by mu
	scale       float64 // its count of tokens divided by the estimate, at least 1; 0 counts as 1; guarded by mu
}

// Generate passes the request on, cut to fit.
func (w *Window) Generate(ctx context.Context, r Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		prompt := newPrompt(r)
		allowance := 0 // of this request only
		for try := 0; ; try++ {
			budget := w.budget(ctx, prompt.size())
			if allowance > 0 {
				budget = min(budget, allowance)
			}
			if r.sizes.tokens(r.Recalled) > budget/2 { // the conversation itself matters more
				r.Recalled = ""
				prompt = newPrompt(r)
			}
			messages, promptTokens := prompt.fit(budget)
			fitted := r
			fitted.Messages = messages
			retry, started := false, false
			var output strings.Builder // as long as the Model has not told its usage
			size := 0
			for d, err := range w.Model.Generate(ctx, fitted) {
				if err == nil {
					if d, err = w.bound(d, &size); err != nil && d.Text != "" && !yield(d, nil) {
						return
					}
				}
				if long, ok := errors.AsType[TooLong](err); err != nil && !started && try < maxShrinking && ok &&
					promptTokens > minPrompt {
					if allowance, retry = w.learn(long, promptTokens, budget); retry {
						break
					}
				}
				if err != nil && output.Len() > 0 {
					// It has used tokens and will not say how many.
					used := event.Usage{InputTokens: int64(promptTokens), OutputTokens: int64(memory.Tokens(output.String())),
						Estimated: true}
					if !yield(Delta{Usage: used}, nil) {
						return
					}
				}
				started = true
				if !yield(d, err) || err != nil {
					return
				}
				if output.WriteString(d.Text); d.Usage != (event.Usage{}) {
					output.Reset()
				}
			}
			if !retry {
				return
			}
		}
	}
}

// bound returns the part of d that fits in MaxAnswer after size bytes, and the error that ends the answer if not all of d
// fits.
func (w *Window) bound(d Delta, size *int) (Delta, error) {
	if w.MaxAnswer == 0 {
		return d, nil
	}
	previous := *size
	*size += event.JSONSize(d.Text)
	for _, c := range d.Calls {
		*size += event.JSONSize(c.Function.Arguments)
	}
	if *size <= w.MaxAnswer {
		return d, nil
	}
	return Delta{Text: event.Shorten(d.Text, max(0, w.MaxAnswer-previous)), Usage: d.Usage}, answerTooLong{}
}

// answerTooLong is the error of an answer that is longer than MaxAnswer.
type answerTooLong struct{}

func (answerTooLong) Error() string { return "the answer is too long" }

// Describe returns the failure of the run.
func (answerTooLong) Describe() *event.Error { return event.Fail(event.AnswerTooLong, "", 0) }

// ContextTokens is the context window as it is before any refusal: what is set, what the Model says, or DefaultTokens.
func (w *Window) ContextTokens(ctx context.Context) int {
	if m, ok := w.Model.(Windowed); ok && w.Tokens == 0 {
		return cmp.Or(m.ContextTokens(ctx), DefaultTokens)
	}
	return cmp.Or(w.Tokens, DefaultTokens)
}

// budget is how many tokens, as estimated, a prompt may have; need is how many it
// would have.
func (w *Window) budget(ctx context.Context, need int) int {
	modelTokens := 0
	if m, ok := w.Model.(Windowed); ok && need > smallPrompt {
		modelTokens = m.ContextTokens(ctx)
	}
	window := cmp.Or(w.Tokens, modelTokens, DefaultTokens)
	w.mu.Lock()
	defer w.mu.Unlock()
	if modelTokens != 0 && modelTokens != w.modelTokens { // another model stands behind the name
		w.modelTokens, w.limit, w.scale = modelTokens, 0, 0
	}
	if w.limit > 0 {
		window = min(window, w.limit)
	}
	return int(float64(w.prompt(window)) / max(w.scale, 1))
}

// prompt is what of a window is for the prompt.
func (w *Window) prompt(window int) int {
	room := min(window/4, maxAnswer)
	if w.Answer > 0 {
		room = min(w.Answer, window/2)
	}
	return window - room
}

// learn keeps what a refusal of a prompt of sent estimated tokens taught. The
// allowance is for this request alone, 0 for none; without again there is nothing
// to be done.
func (w *Window) learn(long TooLong, promptTokens, budget int) (allowance int, retry bool) {
	limit, counted, window, ok := long.TooLong()
	if !ok {
		return 0, false
	}
	half := promptTokens / 2
	if !window {
		if counted > 0 && limit > 0 {
			half = min(half, int(0.8*float64(limit)*float64(promptTokens)/float64(counted)))
		}
		return max(half, minPrompt), true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if counted > promptTokens {
		w.scale = min(maxScale, max(w.scale, float64(counted)/float64(promptTokens)))
	}
	w.limit = cmp.Or(limit, w.limit)
	next := budget
	if w.limit > 0 {
		next = int(float64(w.prompt(w.limit)) / max(w.scale, 1))
	}
	if next >= promptTokens*9/10 { // the numbers explain nothing: half of what was sent
		w.limit = max(minPrompt, int(float64(half)*max(w.scale, 1)*4/3))
	}
	return 0, true
}

// sizes are the estimates of one Run's texts, each made once.
type sizes map[string]int

func (s sizes) tokens(text string) int {
	if s == nil {
		return memory.Tokens(text)
	}
	n, ok := s[text]
	if !ok {
		n = memory.Tokens(text)
		s[text] = n
	}
	return n
}
