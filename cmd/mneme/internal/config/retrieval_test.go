package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/subagent/rag"
)

const collectionsFile = `agents:
  subagents:
    - name: knowledge
      collections:
        - docs
        - {name: news, where: {lang: ru}}
        - name: prices
          where:
            date: {gte: 2024-01-01, lte: "2024-12-31"}
            version: 1.10
            kind:
              in: [faq, 7, true]
            note.kind: x
`

// An entry is a name, or a name with a filter; its values are the texts that stand there;
// config show writes it as it was.
func TestCollectionsMayHaveAFilter(t *testing.T) {
	c, err := load(t, collectionsFile)
	require.NoError(t, err)
	s := c.Agents.Subagents[0]
	require.Equal(t, []string{"docs", "news", "prices"}, s.CollectionNames())
	text := func(s string) *string { return &s }
	require.Nil(t, s.Collections[0].Where)
	require.Equal(t, rag.Where{"lang": {Eq: text("ru")}}, s.Collections[1].Where)
	require.Equal(t, rag.Where{
		"date": {Gte: text("2024-01-01"), Lte: text("2024-12-31")}, "version": {Eq: text("1.10")},
		"kind": {In: []string{"faq", "7", "true"}}, "note.kind": {Eq: text("x")},
	}, s.Collections[2].Where)
	shown, err := c.YAML()
	require.NoError(t, err)
	again, err := load(t, string(shown))
	require.NoError(t, err, string(shown))
	require.Equal(t, s.Collections, again.Agents.Subagents[0].Collections, string(shown))

	c, err = load(t, collectionsFile, "MNEME_AGENTS_SUBAGENTS=[{name: knowledge, collections: [wiki, {name: docs}]}]")
	require.NoError(t, err)
	require.Equal(t, []*Collection{{Name: "wiki"}, {Name: "docs"}}, c.Agents.Subagents[0].Collections)
}

func TestWrongCollections(t *testing.T) {
	for entry, want := range map[string]string{
		"News": "mneme.yaml:4: agents.subagents[0].collections[0]: a collection's name is " +
			"1 to 64 characters of a-z 0-9 _ -, not \"News\"",
		"{where: {lang: ru}}": "mneme.yaml:4: agents.subagents[0].collections[0]: is empty or missing; a collection's name is " +
			"1 to 64 characters of a-z 0-9 _ -",
		"[docs]": "mneme.yaml:4: agents.subagents[0].collections[0]: a collection's name is " +
			"needed, or a block with name and where",
		"": "mneme.yaml:4: agents.subagents[0].collections[0]: is empty; a name " +
			"is needed, or a block of keys",
		"{name: [a]}": "mneme.yaml:4: agents.subagents[0].collections[0].name: text is needed",
		"{name: news, were: {lang: ru}}": "mneme.yaml:4: agents.subagents[0].collections[0].were: unknown key; an " +
			"entry of collections has name and where",
		"{name: news, where: }": "mneme.yaml:4: agents.subagents[0].collections[0].where: may not be empty; " +
			"remove the key to search all documents",
		"{name: news, where: {}}": "mneme.yaml:4: agents.subagents[0].collections[0].where: is empty: leave " +
			"it out to search all documents",
		"{name: news, where: ru}": "mneme.yaml:4: agents.subagents[0].collections[0].where: must be an object " +
			"of metadata keys, such as {\"lang\": \"en\"}, not a string",
		"{name: news, where: {d: {gt: 1}}}": "mneme.yaml:4: agents.subagents[0].collections[0].where.d.gt: has no such " +
			"operator: there are eq, in, gte and lte",
		"{name: news, where: {a.b: {in: 1}}}": "mneme.yaml:4: agents.subagents[0].collections[0].where.'a.b'.in: must be " +
			"a list of values, not a string",
		"{name: news, where: {d: [1]}}": "mneme.yaml:4: agents.subagents[0].collections[0].where.d: must be a " +
			"string, a number, true or false, not an array",
		"docs\n    - docs": "mneme.yaml:5: agents.subagents[0].collections[1]: \"docs\" is listed " +
			"twice; keep one, whose where may ask for one of several values with in",
	} {
		_, err := load(t, "agents:\n  subagents:\n  - name: knowledge\n    collections:\n    - "+entry+"\n")
		want = strings.Replace(want, "mneme.yaml:4", "mneme.yaml:5", 1)
		if strings.Contains(entry, "\n") {
			want = strings.Replace(want, "mneme.yaml:5", "mneme.yaml:6", 1)
		}
		require.EqualError(t, err, want, entry)
	}
	_, err := load(t, "", "MNEME_AGENTS_SUBAGENTS=[{name: knowledge, collections: [{name: news, were: {}}]}]")
	require.EqualError(t, err,
		"MNEME_AGENTS_SUBAGENTS: agents.subagents[0].collections[0].were: unknown key; an entry of "+
			"collections has name and where")
}

func TestTheWeightOfVectors(t *testing.T) {
	c, err := load(t, "retrieval: {vector_weight: 0.3}")
	require.NoError(t, err)
	require.Equal(t, 0.3, c.Retrieval.VectorWeight)
	for _, wrong := range []string{"0", "1", "-0.1", "1.5", ".nan"} {
		_, err := load(t, "retrieval: {vector_weight: "+wrong+"}")
		require.ErrorContains(t, err, "mneme.yaml:1: retrieval.vector_weight: must be more than 0 and less than 1", wrong)
	}
	_, err = load(t, "", "MNEME_RETRIEVAL_VECTOR_WEIGHT=half")
	require.EqualError(t, err, `MNEME_RETRIEVAL_VECTOR_WEIGHT: a number is needed, not "half"`)
}

func TestTheReranker(t *testing.T) {
	const file = `retrieval: {rerank: {url: "http://127.0.0.1:8085/v1/rerank", model: m, top: 30, timeout: 500ms, ` +
		`api_key_env: RERANK_KEY}}`
	c, err := load(t, file, "RERANK_KEY=hush\n")
	require.NoError(t, err)
	require.Equal(t, Rerank{URL: "http://127.0.0.1:8085/v1/rerank", Model: "m", Top: 30, Timeout: 500 * time.Millisecond,
		APIKeyEnv: Variable{"RERANK_KEY", "hush\n"}}, c.Retrieval.Rerank)
	require.NoError(t, c.RequireSecrets("retrieval.rerank."))
	require.Equal(t, []string{"hush"}, c.Secrets())
	shown, err := c.YAML()
	require.NoError(t, err)
	require.NotContains(t, string(shown), "hush")

	c, err = load(t, file)
	require.NoError(t, err, "who does not rerank runs without the key")
	require.EqualError(t, c.RequireSecrets("retrieval.rerank."),
		"mneme.yaml:1: retrieval.rerank.api_key_env: the environment variable RERANK_KEY is not set; export the key in it, "+
			"or write it into .env and run docker compose up -d")
	for wrong, want := range map[string]string{
		"model: m": "retrieval.rerank.model: there is no endpoint that could have it; set " +
			"retrieval.rerank.url",
		"url: 127.0.0.1":       `retrieval.rerank.url: an http:// or https:// URL is needed, not "127.0.0.1"`,
		"url: http://u:p@x/v1": "retrieval.rerank.url: the URL may hold a host and a path only",
		"top: 1":               "retrieval.rerank.top: must be from 2 to 100, is 1",
		"top: 101":             "retrieval.rerank.top: must be from 2 to 100, is 101",
		"timeout: 0s":          "retrieval.rerank.timeout: must be more than 0, is 0s",
		"timeout: soon": `retrieval.rerank.timeout: a duration such as 90s, 10m or 24h is needed, not ` +
			`"soon"`,
		"api_key_env: sk-1234567890abcdef": "retrieval.rerank.api_key_env: this looks like a secret itself, or is no " +
			"variable's name; put the secret into an environment variable and write its name here, such as OPENAI_API_KEY",
	} {
		_, err := load(t, "retrieval: {rerank: {"+wrong+"}}")
		require.EqualError(t, err, "mneme.yaml:1: "+want)
	}
}

func TestTheSearchEngine(t *testing.T) {
	c, err := load(t, `retrieval: {engine: {urls: ["http://a:8080", "http://b:8080"], api_key_env: ENGINE_KEY}}`,
		"ENGINE_KEY=hush\n")
	require.NoError(t, err)
	require.Equal(t, Engine{URLs: []string{"http://a:8080", "http://b:8080"}, Class: "Mneme",
		APIKeyEnv: Variable{"ENGINE_KEY", "hush\n"}}, c.Retrieval.Engine)
	require.Equal(t, []string{"hush"}, c.Secrets())
	for wrong, want := range map[string]string{
		`engine: {urls: ["http://a"]}, embeddings: {model: m}`: "retrieval.engine.urls: a search engine finds by words " +
			"alone, and retrieval.embeddings.model is set; remove one of them",
		`engine: {urls: ["a:8080"]}`: `retrieval.engine.urls[0]: an http:// or https:// URL is needed, not "a:8080"`,
		`engine: {class: docs}`: "retrieval.engine.class: a name of a capital letter and up to 63 letters and digits is " +
			`needed, not "docs"`,
		`engine: {urls: ["http://a"], replicas: 2}`: "retrieval.engine.replicas: 2 are more than retrieval.engine.urls names " +
			"nodes (1)",
		`engine: {replicas: -1}`: "retrieval.engine.replicas: must be 0 or more, is -1",
	} {
		_, err := load(t, "proxy: {embeddings_backend: b, backends: {b: {kind: openai, base_url: 'http://c/v1', "+
			"models: [m]}}}\nretrieval: {"+wrong+"}")
		require.ErrorContains(t, err, want, wrong)
	}
}
