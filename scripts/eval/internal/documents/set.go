// Package documents measures how well the index finds what people judged to be
// relevant.
//
// A judged set is a folder:
//
//	corpus.jsonl         {"id","title","text"} per line, the title may be missing
//	queries.jsonl        {"id","text"}
//	qrels.tsv            query id, document id and grade, separated by tabs; 0 and
//	                     less is not relevant
//	conversations.jsonl  {"id","messages":[{"role","content"}]}, optional: the
//	                     queries as the last turns of conversations
//	queries_NAME.jsonl   optional: the queries in other words
//
// Members that are not named here are ignored. Queries without a relevant document
// and judgements of queries that are not there are left out, documents that are
// relevant but not there count as not found.
package documents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mneme/memory"
	"mneme/scripts/eval/internal/judged"
)

// The files of a judged set.
const (
	corpusFile        = "corpus.jsonl"
	queriesFile       = "queries.jsonl"
	judgementsFile    = "qrels.tsv"
	conversationsFile = "conversations.jsonl"
)

// Set is a judged set.
type Set struct {
	Name      string // of its folder
	documents []document
	forms     []form                    // the first is the one that counts
	grades    map[string]map[string]int // by query and document
}

type document struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Text  string `json:"text"`
}

// form is the queries in one wording.
type form struct {
	name    string
	queries []query
}

// query is a question with the conversation before it, if it has one.
type query struct {
	id      string
	text    string
	history []memory.Message
}

// Find gives the folders of judged sets: dir itself, or those in it; only the one
// that is called name, unless that is empty.
func Find(dir, name string) ([]string, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such folder", dir)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is a file; name the folder of a judged set, or one that holds some", dir)
	}
	sets, err := filepath.Glob(filepath.Join(judged.Escape(dir), "*", corpusFile))
	if err != nil {
		return nil, err
	}
	if own := filepath.Join(dir, corpusFile); exists(own) {
		sets = []string{own}
	}
	if len(sets) == 0 {
		return nil, fmt.Errorf("%s holds no judged set: neither it nor a folder in it has a %s", dir, corpusFile)
	}
	var names []string
	for i := range sets {
		sets[i] = filepath.Dir(sets[i])
		names = append(names, nameOf(sets[i]))
	}
	if name == "" {
		return sets, nil
	}
	i := slices.Index(names, name)
	if i < 0 {
		return nil, fmt.Errorf("%s holds no judged set %q, only %s", dir, name, strings.Join(names, ", "))
	}
	return sets[i : i+1], nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func nameOf(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Base(dir)
}

// load reads a judged set. Errors name the file and the line.
func load(dir string) (*Set, error) {
	s := &Set{Name: nameOf(dir), grades: map[string]map[string]int{}}
	if err := s.readCorpus(filepath.Join(dir, corpusFile)); err != nil {
		return nil, err
	}
	judgements := filepath.Join(dir, judgementsFile)
	if err := eachLine(judgements, s.readJudgement); err != nil {
		return nil, err
	}
	if err := s.readForms(dir); err != nil {
		return nil, err
	}
	for _, f := range s.forms {
		if len(f.queries) == 0 {
			return nil, fmt.Errorf("%s: no query of %s has a relevant document", judgements, f.name)
		}
	}
	return s, nil
}

func (s *Set) readCorpus(path string) error {
	ids := map[string]bool{}
	err := eachLine(path, func(line []byte) error {
		var d document
		if err := decode(line, &d); err != nil {
			return err
		}
		if err := fresh(ids, d.ID); err != nil {
			return err
		}
		s.documents = append(s.documents, d)
		return nil
	})
	if err == nil && len(s.documents) == 0 {
		return fmt.Errorf("%s holds no documents", path)
	}
	return err
}

func (s *Set) readJudgement(line []byte) error {
	fields := strings.Split(string(line), "\t")
	if len(fields) != 3 {
		return fmt.Errorf("a line is a query's id, a document's id and a grade with tabs between them; this one has %d "+
			"fields", len(fields))
	}
	grade, err := strconv.Atoi(strings.TrimSpace(fields[2]))
	if err != nil {
		return fmt.Errorf("the grade must be an integer, not %q", fields[2])
	}
	grades := s.grades[fields[0]]
	if grades == nil {
		grades = map[string]int{}
		s.grades[fields[0]] = grades
	}
	if _, dup := grades[fields[1]]; dup {
		return fmt.Errorf("document %q is judged a second time for query %q", fields[1], fields[0])
	}
	grades[fields[1]] = grade
	return nil
}

// readForms reads all wordings of the queries.
func (s *Set) readForms(dir string) error {
	if path := filepath.Join(dir, conversationsFile); exists(path) {
		if err := s.readForm(path, "conversations", conversation); err != nil {
			return err
		}
	}
	if err := s.readForm(filepath.Join(dir, queriesFile), "queries", single); err != nil {
		return err
	}
	others, err := filepath.Glob(filepath.Join(judged.Escape(dir), "queries_*.jsonl"))
	if err != nil {
		return err
	}
	for _, path := range others {
		name := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		if err := s.readForm(path, name, single); err != nil {
			return err
		}
	}
	return nil
}

// readForm reads the queries of one file that have a relevant document.
func (s *Set) readForm(path, name string, parse func(line []byte) (query, error)) error {
	f := form{name: name}
	ids := map[string]bool{}
	err := eachLine(path, func(line []byte) error {
		q, err := parse(line)
		if err != nil {
			return err
		}
		if err := fresh(ids, q.id); err != nil {
			return err
		}
		if relevant(s.grades[q.id]) > 0 {
			f.queries = append(f.queries, q)
		}
		return nil
	})
	s.forms = append(s.forms, f)
	return err
}

func single(line []byte) (query, error) {
	var q document
	err := decode(line, &q)
	return query{id: q.ID, text: q.Text}, err
}

func conversation(line []byte) (query, error) {
	var c struct {
		ID       string `json:"id"`
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
	}
	if err := decode(line, &c); err != nil {
		return query{}, err
	}
	last := len(c.Messages) - 1
	if last < 0 || c.Messages[last].Role != memory.RoleUser {
		return query{}, errors.New(`"messages" must end with one of the role "user"`)
	}
	q := query{id: c.ID, text: c.Messages[last].Content}
	for _, m := range c.Messages[:last] {
		q.history = append(q.history, memory.Message{Role: m.Role, Content: m.Content})
	}
	return q, nil
}

// decode reads a line that is one JSON object.
func decode(line []byte, dst any) error {
	err := json.Unmarshal(line, dst)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Errorf("%q cannot be a JSON %s", wrong.Field, wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("a line must be a JSON object, not a JSON %s", wrong.Value)
	}
	return fmt.Errorf("a line must be a JSON object: %w", err)
}

// fresh says what is wrong with an id, if anything.
func fresh(ids map[string]bool, id string) error {
	switch {
	case id == "":
		return errors.New(`"id" is missing`)
	case ids[id]:
		return fmt.Errorf("id %q occurs a second time", id)
	}
	ids[id] = true
	return nil
}

// eachLine calls do with the lines of a file of a set.
func eachLine(path string, do func(line []byte) error) error {
	err := judged.Lines(path, do)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such file; a judged set has %s, %s and %s", path, corpusFile, queriesFile, judgementsFile)
	}
	return err
}

// limit leaves at most n documents: those that are relevant to the first queries, as
// many queries as these take half of the room, and then others in their order. Queries
// with a relevant document that is not among them go. All ways to rank are measured on
// what is left, so that they compare with each other, and not with the whole set.
func (s *Set) limit(n int) {
	if n <= 0 || len(s.documents) <= n {
		return
	}
	present := map[string]bool{}
	for _, d := range s.documents {
		present[d.ID] = true
	}
	// wanted are the relevant documents of a query that are in the set.
	relevantIDs := func(q query) (ids []string) {
		for id, grade := range s.grades[q.id] {
			if grade > 0 && present[id] {
				ids = append(ids, id)
			}
		}
		return ids
	}
	selected := map[string]bool{}
	for _, q := range s.forms[0].queries {
		extra := slices.DeleteFunc(relevantIDs(q), func(id string) bool { return selected[id] })
		if len(selected)+len(extra) > (n+1)/2 && len(selected) > 0 {
			break
		}
		for _, id := range extra {
			selected[id] = true
		}
	}
	room := n - len(selected)
	s.documents = slices.DeleteFunc(s.documents, func(d document) bool {
		if selected[d.ID] {
			return false
		}
		room--
		selected[d.ID] = room >= 0
		return room < 0
	})
	for i := range s.forms {
		f := &s.forms[i]
		f.queries = slices.DeleteFunc(f.queries, func(q query) bool {
			ids := relevantIDs(q)
			return len(ids) == 0 || slices.ContainsFunc(ids, func(id string) bool { return !selected[id] })
		})
	}
}

// afterOthers is what is added to the name of a wording with queries that come behind
// conversations on other topics.
const afterOthers = ", after other topics"

// Of the conversations on other topics there are 1 to mostTopics before a query, and
// each ends with an answer, the first answerBytes of a document that is relevant to it.
const (
	mostTopics  = 10
	answerBytes = 300
)

// afterOthers gives the queries of a wording, each in a chat that was about something
// else before: other queries of the wording with their conversations and answers, none
// with a relevant document in common. What is chosen is the same on every run.
func (s *Set) afterOthers(f form) form {
	texts := s.texts()
	random := rand.New(rand.NewPCG(1, 2))
	out := form{name: f.name + afterOthers}
	for _, q := range f.queries {
		var history []memory.Message
		for range 1 + random.IntN(mostTopics) {
			other := f.queries[random.IntN(len(f.queries))]
			if s.onTopicOf(q, other) {
				continue
			}
			history = append(history, other.history...)
			history = append(history, memory.Message{Role: memory.RoleUser, Content: other.text},
				memory.Message{Role: memory.RoleAssistant, Content: s.answer(other, texts)})
		}
		out.queries = append(out.queries, query{q.id, q.text, append(history, q.history...)})
	}
	return out
}

// onTopicOf says whether two queries have a relevant document or a conversation's
// first turn in common.
func (s *Set) onTopicOf(q, other query) bool {
	for id, grade := range s.grades[q.id] {
		if grade > 0 && s.grades[other.id][id] > 0 {
			return true
		}
	}
	return q.opening() == other.opening()
}

func (q query) opening() string {
	if len(q.history) > 0 {
		return q.history[0].Content
	}
	return q.text
}

// answer is the beginning of the relevant document that comes first in the set.
func (s *Set) answer(q query, texts func(id string, passage int) string) string {
	for _, d := range s.documents {
		if s.grades[q.id][d.ID] > 0 {
			text := texts(d.ID, 0)
			return strings.ToValidUTF8(text[:min(len(text), answerBytes)], "")
		}
	}
	return ""
}
