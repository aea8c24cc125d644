// Package embedding asks an endpoint of embeddings for the vectors that are measured. It asks again
// after failures that pass, and keeps the vectors of documents between runs.
package embedding

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"mneme/subagent/openaimodel"
	"mneme/subagent/rag"
)

// Embedder gives the vectors that are measured.
type Embedder interface {
	// Embed gives a vector for each text, in their order.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Tokens is how many the endpoint has counted so far, 0 if it does not say.
	Tokens() int64
}

// Report is what was asked of the endpoint.
type Report struct {
	Documents int     `json:"documents"` // that were sent
	Cached    int     `json:"kept"`      // that had a vector from an earlier run
	Queries   int     `json:"queries"`   // that were sent, each by itself as a search does
	Refused   int     `json:"refused"`   // texts that the endpoint does not take; words find them still
	Tokens    int64   `json:"tokens"`    // that the endpoint counted; 0 if it does not say
	Seconds   float64 `json:"seconds"`   // that it took for the documents
	Size      int     `json:"dimensions"`
}

// String is a line for people.
func (r Report) String() string {
	tokens := "which does not say how many tokens"
	if r.Tokens > 0 {
		tokens = fmt.Sprintf("%d tokens", r.Tokens)
	}
	return fmt.Sprintf("Embeddings of %d dimensions: %d texts in %.1f s, %d queries, %s; %d vectors were kept from "+
		"before, %d refused.\n", r.Size, r.Documents, r.Seconds, r.Queries, tokens, r.Cached, r.Refused)
}

// Endpoint asks an Embedder and keeps what it said.
type Endpoint struct {
	Embedder Embedder
	File     *VectorFile // nil for none
	Progress func(doing string)
	Report   Report
	queries  map[string]Timed
}

// Timed is the vector of a query, nil if it was refused, and how long it took.
type Timed struct {
	Vector []float32
	Took   time.Duration
}

const (
	embedBatch = 64
	attempts   = 6           // of one request
	firstPause = time.Second // before the second attempt; it doubles
)

// Texts gives the vectors of the texts of a set, nil for those without one.
func (e *Endpoint) Texts(ctx context.Context, set string, texts []string) ([][]float32, error) {
	vectors := make([][]float32, len(texts))
	places := map[string][]int{}
	var missing []string
	size := 0
	for i, text := range texts {
		if v := e.File.get(text); v != nil {
			vectors[i] = v
			e.Report.Cached++
			if err := e.sized(v); err != nil {
				return nil, err
			}
			continue
		}
		if text != "" && places[text] == nil {
			missing = append(missing, text)
			size += len(text)
		}
		places[text] = append(places[text], i)
	}
	began := time.Now()
	for done := 0; done < len(missing); {
		e.Progress(remaining(set, len(missing), done, size, time.Since(began)))
		batch := missing[done:min(done+embedBatch, len(missing))]
		fresh, err := e.embed(ctx, batch)
		if err != nil {
			return nil, fmt.Errorf("embedding the texts of %s: %w", set, err)
		}
		for i, v := range fresh {
			for _, index := range places[batch[i]] {
				vectors[index] = v
			}
			if v == nil {
				continue
			}
			if err := e.File.put(batch[i], v); err != nil {
				return nil, err
			}
		}
		done += len(batch)
		e.Report.Documents += len(batch)
	}
	e.Report.Seconds += time.Since(began).Seconds()
	return vectors, nil
}

// remaining says how far the embedding of texts is. Of English about four bytes are
// a token.
func remaining(set string, texts, done, size int, took time.Duration) string {
	status := fmt.Sprintf("%s: embedding %d texts, some %d tokens", set, texts, size/4)
	if done > 0 {
		eta := took * time.Duration(texts-done) / time.Duration(done)
		status += fmt.Sprintf(": %d done, %v left", done, eta.Round(time.Second))
	}
	return status
}

// Query gives the vector of a question. Took is how long the endpoint took for it if
// that was before this call.
func (e *Endpoint) Query(ctx context.Context, text string) (Timed, error) {
	if cached, ok := e.queries[text]; ok {
		return cached, nil
	}
	began := time.Now()
	vectors, err := e.embed(ctx, []string{text})
	if err != nil {
		return Timed{}, fmt.Errorf("embedding a query: %w", err)
	}
	e.Report.Queries++
	if e.queries == nil {
		e.queries = map[string]Timed{}
	}
	e.queries[text] = Timed{vectors[0], time.Since(began)}
	return Timed{Vector: vectors[0]}, nil
}

// embed embeds texts of which the endpoint may refuse some. Those get no vector.
func (e *Endpoint) embed(ctx context.Context, texts []string) ([][]float32, error) {
	return rag.EmbedApart(ctx, texts, e.ask, func(string, error) { e.Report.Refused++ })
}

// ask repeats what may succeed later.
func (e *Endpoint) ask(ctx context.Context, texts []string) ([][]float32, error) {
	for attempt := 1; ; attempt++ {
		vectors, err := e.Embedder.Embed(ctx, texts)
		e.Report.Tokens = e.Embedder.Tokens()
		if err == nil {
			for _, v := range vectors {
				if err := e.sized(v); err != nil {
					return nil, err
				}
			}
			return vectors, nil
		}
		if ctx.Err() != nil || attempt == attempts || !retryable(err) {
			return nil, err
		}
		pause := firstPause << (attempt - 1)
		if apiErr, ok := errors.AsType[*openaimodel.Error](err); ok {
			pause = max(pause, min(apiErr.RetryAfter, time.Minute))
		}
		e.Progress(fmt.Sprintf("%v; trying again in %v", err, pause))
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// sized refuses a vector that is not as long as those before.
func (e *Endpoint) sized(v []float32) error {
	if e.Report.Size == 0 {
		e.Report.Size = len(v)
	}
	if len(v) != e.Report.Size || len(v) == 0 {
		return fmt.Errorf("the vectors are not of one size: one has %d dimensions, those before have %d", len(v),
			e.Report.Size)
	}
	return nil
}

// retryable says whether an error may be gone at the next attempt. An answer that came
// and makes no sense, as with vectors of another size than asked for, is so every time.
func retryable(err error) bool {
	apiErr, ok := errors.AsType[*openaimodel.Error](err)
	return ok && apiErr.Retryable() && (apiErr.Status != 0 || errors.Unwrap(apiErr) != nil)
}

// VectorFile keeps vectors of texts between runs, so that an endpoint is asked, and
// paid, once. Its first line names the endpoint and the model; behind it stand records
// of a text's SHA-256, the count of numbers, and these, little-endian. A record that a
// killed run left half written is cut off.
type VectorFile struct {
	file    *os.File
	vectors map[[sha256.Size]byte][]float32
}

// vectorHead is the first line.
type vectorHead struct {
	Space string `json:"mneme_vectors_of"`
}

// maxVector bounds the numbers of a vector that is believed.
const maxVector = 1 << 16

// OpenVectors opens or makes the file at path for the vectors of a space, which names
// the endpoint, the model and the dimensions.
func OpenVectors(path, space string) (*VectorFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f := &VectorFile{file: file, vectors: map[[sha256.Size]byte][]float32{}}
	if err := f.read(space); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func (f *VectorFile) read(space string) error {
	in := bufio.NewReader(f.file)
	first, err := in.ReadBytes('\n')
	if len(first) == 0 && errors.Is(err, io.EOF) {
		return json.NewEncoder(f.file).Encode(vectorHead{space}) // with a newline
	}
	var head vectorHead
	if err != nil || json.Unmarshal(first, &head) != nil || head.Space == "" {
		return errors.New("this is no file of vectors; name another one, or a new one")
	}
	if head.Space != space {
		return fmt.Errorf("it has vectors of %s, not of %s: name another file for those", head.Space, space)
	}
	validSize := int64(len(first))
	for {
		var record struct {
			Hash  [sha256.Size]byte
			Count uint32
		}
		if err := binary.Read(in, binary.LittleEndian, &record); err != nil || record.Count > maxVector {
			break
		}
		v := make([]float32, record.Count)
		if err := binary.Read(in, binary.LittleEndian, v); err != nil {
			break
		}
		f.vectors[record.Hash] = v
		validSize += sha256.Size + 4 + 4*int64(record.Count)
	}
	if err := f.file.Truncate(validSize); err != nil {
		return err
	}
	_, err = f.file.Seek(validSize, io.SeekStart)
	return err
}

// get is a text's vector, nil if there is none.
func (f *VectorFile) get(text string) []float32 {
	if f == nil {
		return nil
	}
	return f.vectors[sha256.Sum256([]byte(text))]
}

// put adds the vector of a text.
func (f *VectorFile) put(text string, v []float32) error {
	if f == nil {
		return nil
	}
	hash := sha256.Sum256([]byte(text))
	record := binary.LittleEndian.AppendUint32(hash[:], uint32(len(v)))
	record, _ = binary.Append(record, binary.LittleEndian, v) // a slice of numbers always fits
	if _, err := f.file.Write(record); err != nil {
		return fmt.Errorf("keeping a vector: %w", err)
	}
	f.vectors[hash] = v
	return nil
}

// Close closes the file; nil has none.
func (f *VectorFile) Close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}
