package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/subagent/rag/loader"
)

func TestExtractors(t *testing.T) {
	c, err := load(t, `retrieval:
  extractors:
    .pdf: {command: [cat, -], timeout: 5s}
    .png: {url: "http://127.0.0.1:9998/tika", timeout: 3m}
    .tiff: {command: [cat, -u]}
`)
	require.NoError(t, err)
	got, err := c.Loaders()
	require.NoError(t, err)
	require.Equal(t, map[string]loader.Extractor{
		".pdf":  loader.Command{Args: []string{"cat", "-"}, Time: 5 * time.Second},
		".png":  loader.Service{URL: "http://127.0.0.1:9998/tika", Time: 3 * time.Minute},
		".tiff": loader.Command{Args: []string{"cat", "-u"}, Time: time.Minute},
	}, got)

	for value, sentence := range map[string]string{
		"pdf: {command: [cat]}":                    "mneme.yaml:3: retrieval.extractors.pdf: a file's extension is a full stop",
		".pdf: {}":                                 "retrieval.extractors.'.pdf': says nothing; give a command",
		".pdf: {command: ['']}":                    "retrieval.extractors.'.pdf'.command[0]: is empty or missing; it is a program",
		".pdf: {url: tika}":                        "retrieval.extractors.'.pdf'.url: ",
		".pdf: {url: 'ftp://x/'}":                  "retrieval.extractors.'.pdf'.url: ",
		".pdf: {command: [cat], url: 'http://x/'}": "command and url are both set; keep one of them",
		".pdf: {command: [cat], timeout: -1s}":     "retrieval.extractors.'.pdf'.timeout: must be more than 0",
		".pdf: {comand: [cat]}":                    "did you mean command?",
	} {
		_, err := load(t, "retrieval:\n  extractors:\n    "+value+"\n")
		require.ErrorContains(t, err, sentence, value)
	}
	c, err = load(t, "retrieval:\n  extractors:\n    .pdf:\n      command: [no-such-program-here]\n")
	require.NoError(t, err, "other services need no program")
	_, err = c.Loaders()
	require.ErrorContains(t, err,
		"mneme.yaml:4: retrieval.extractors.'.pdf'.command: there is no program no-such-program-here that can be run")
}
