package rag_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// shelf is what two replicas of some collections must hold, kept beside them.
type shelf struct {
	t        *testing.T
	random   *rand.Rand
	server   *redistest.Server
	replicas []*rag.Library
	hybrid   *rag.Library // a third one, which has vectors of what it got to
	names    []docstore.Collection
	texts    map[docstore.Collection]map[string]string // what was acknowledged
	// unsure are documents with a last change that was not acknowledged: it was made or not.
	unsure map[docstore.Collection]map[string]bool

	serial   int
	searches int
	found    int
	degraded int
}

func newShelf(t *testing.T, server *redistest.Server, seed uint64) *shelf {
	s := &shelf{t: t, random: rand.New(rand.NewPCG(seed, 1)), server: server,
		texts: map[docstore.Collection]map[string]string{}, unsure: map[docstore.Collection]map[string]bool{}}
	s.replicas = []*rag.Library{s.library(), s.library()}
	s.hybrid = hybrid(t, server, &hashing{space: "hash/64", size: 64})
	chat, err := docstore.OfChat(memory.MustChat("7"))
	require.NoError(t, err)
	other, err := memory.ParseTenant("other")
	require.NoError(t, err)
	foreign, err := docstore.NamedCollection(other, "docs")
	require.NoError(t, err)
	docs, err := docstore.NamedCollection(memory.Tenant{}, "docs")
	require.NoError(t, err)
	s.names = []docstore.Collection{docs, foreign, chat}
	for _, c := range s.names {
		_, err := s.replicas[0].Create(ctx, c)
		require.NoError(t, err)
		s.texts[c], s.unsure[c] = map[string]string{}, map[string]bool{}
	}
	return s
}

// library is a replica with a short log, so that gaps happen.
func (s *shelf) library() *rag.Library {
	return rag.NewLibrary(docstore.New(s.server.Client(), 150), rag.Options{Log: zerolog.Nop(), Patience: 10 * time.Second,
		CatchUp: 30 * time.Second})
}

func (s *shelf) any() *rag.Library { return s.replicas[s.random.IntN(len(s.replicas))] }

func (s *shelf) step() {
	c := s.names[s.random.IntN(len(s.names))]
	id := fmt.Sprintf("doc%d", s.random.IntN(40))
	switch n := s.random.IntN(1000); {
	case n < 350:
		s.put(c, id)
	case n < 500:
		s.delete(c, id)
	case n < 504: // a process restarts
		s.replicas[s.random.IntN(2)] = s.library()
	case n < 506:
		s.renew(c)
	default:
		s.search(c)
	}
}

func (s *shelf) put(c docstore.Collection, id string) {
	s.serial++
	text := fmt.Sprintf("%s of %s tells of fruit%d and number%d", id, c, s.random.IntN(8), s.serial)
	if strings.HasSuffix(id, "9") { // of several passages
		text += strings.Repeat(". More of the same, at some length, so that it is cut", 80)
	}
	s.unsure[c][id] = true
	if _, err := s.any().Put(ctx, c, input(id, text)); err == nil {
		delete(s.unsure[c], id)
		s.texts[c][id] = text
	} else {
		require.ErrorIs(s.t, err, docstore.ErrUnavailable)
	}
}

func (s *shelf) delete(c docstore.Collection, id string) {
	s.unsure[c][id] = true
	l := s.any()
	_, err := l.Delete(ctx, c, id)
	if err != nil {
		require.ErrorIs(s.t, err, docstore.ErrUnavailable)
		return
	}
	delete(s.unsure[c], id)
	delete(s.texts[c], id)
	s.search(c) // at once
}

// renew drops a collection and makes it anew.
func (s *shelf) renew(c docstore.Collection) {
	l := s.any()
	_, err := l.Drop(ctx, c)
	require.NoError(s.t, err)
	_, err = l.Create(ctx, c)
	require.NoError(s.t, err)
	clear(s.texts[c])
	clear(s.unsure[c])
}

// search looks whether every passage that is found belongs to a document as it was
// put last, and whether a word finds all that have it.
func (s *shelf) search(c docstore.Collection) {
	word := fmt.Sprintf("fruit%d", s.random.IntN(8))
	l := s.any()
	if s.random.IntN(5) == 0 {
		l = s.hybrid
	}
	r, err := l.Search(ctx, rag.Request{Collections: []docstore.Collection{c}, Query: word, K: rag.MaxK})
	require.NoError(s.t, err)
	s.searches++
	if r.Degraded && l != s.hybrid {
		s.degraded++
	}
	seen := map[string]bool{}
	for _, p := range r.Passages {
		s.found++
		require.Equal(s.t, c.String(), p.Collection)
		seen[p.DocID] = true
		if s.unsure[c][p.DocID] {
			continue
		}
		text, there := s.texts[c][p.DocID]
		require.True(s.t, there, "%s is deleted, but %q was found", p.DocID, p.Text)
		require.Equal(s.t, text[p.Start:p.End], p.Text, "dangling, or of an earlier version")
		require.Contains(s.t, text, " of "+c.String()+" ")
	}
	for id, text := range s.texts[c] {
		if !s.unsure[c][id] && strings.Contains(text, word+" ") {
			require.True(s.t, seen[id], "%s was put, but is not found", id)
		}
	}
}

// settle looks into the store for what became of changes that were not
// acknowledged.
func (s *shelf) settle() {
	for c, ids := range s.unsure {
		for id := range ids {
			var d docstore.Document
			var err error
			require.Eventually(s.t, func() bool { // a store that was just started may still read its files
				d, err = s.replicas[0].Get(ctx, c, id)
				return err == nil || errors.Is(err, docstore.ErrNoDocument)
			}, 30*time.Second, 50*time.Millisecond)
			if err != nil {
				delete(s.texts[c], id)
				continue
			}
			s.texts[c][id] = d.Text
		}
		clear(ids)
	}
}

// Ten thousand random changes and searches of three collections over two replicas and a hybrid one,
// with restarts, cut logs and a store that is killed now and then: nothing that was
// deleted, nothing of another collection and nothing without its document is ever
// found, and nothing that was put is missed.
func TestRandomOperations(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	operations, kills := 10_000, 4
	if testing.Short() {
		operations, kills = 1_500, 1
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newShelf(t, server, seed)
	for i := range operations {
		if (i+1)%(operations/(kills+1)) == 0 {
			s.kill()
		}
		s.step()
	}
	require.Positive(t, s.found)
	t.Logf("%d searches found %d passages", s.searches, s.found)
	require.Zero(t, s.degraded)
	for _, c := range s.names {
		for range 20 {
			s.search(c)
		}
	}
}

// kill kills the store while a writer is at it, and starts it again.
func (s *shelf) kill() {
	c := s.names[0]
	l := s.any()
	begun := make(chan struct{})
	type written struct{ id, text string }
	acknowledged := make(chan []written, 1)
	ended, cancel := context.WithCancel(ctx)
	go func() {
		var list []written
		defer func() { acknowledged <- list }()
		for i := 0; ended.Err() == nil; i++ {
			w := written{fmt.Sprintf("doc%d", i%40), fmt.Sprintf("doc%d of %s tells of fruit%d and kill%d", i%40, c, i%8, i)}
			if _, err := l.Put(ended, c, input(w.id, w.text)); err != nil {
				return
			}
			list = append(list, w)
			if i == 20 {
				close(begun)
			}
		}
	}()
	<-begun
	s.server.Kill()
	cancel()
	for _, w := range <-acknowledged {
		s.texts[c][w.id] = w.text
	}
	for i := range 40 { // the one that failed may have been made
		s.unsure[c][fmt.Sprintf("doc%d", i)] = true
	}
	require.NoError(s.t, s.server.Run())
	lost := map[string]string{}
	for id, text := range s.texts[c] {
		lost[id] = text
	}
	s.settle()
	differ := 0
	for id, text := range lost {
		if s.texts[c][id] != text {
			differ++
		}
	}
	require.LessOrEqual(s.t, differ, 1, "only the write that was not acknowledged may differ")
}
