package config

import (
	"cmp"
	"os/exec"
	"time"

	"mneme/subagent/rag/loader"
)

// Extractor is a program or a service that reads the files of an extension.
type Extractor struct {
	Command []string      `yaml:"command" check:"dive,word"` // a program and its arguments
	URL     string        `yaml:"url" check:"omitempty,url"`
	Timeout time.Duration `yaml:"timeout" check:"omitempty,positive"` // for one file; 0: loader.ExtractorTime
}

func (e Extractor) check(key string, _ Config) error {
	return cmp.Or(
		when(len(e.Command) > 0 && e.URL != "", key, "command and url are both set; keep one of them"),
		when(len(e.Command) == 0 && e.URL == "", key,
			"says nothing; give a command, such as [pdftotext, -, -], or a url, such as http://127.0.0.1:9998/tika"),
	)
}

// Loaders are the extractors as a loader takes them. A command that is not installed
// is an error: an apiserver asks for it before it starts, no other service needs the
// programs.
func (c Config) Loaders() (map[string]loader.Extractor, error) {
	loaders := map[string]loader.Extractor{}
	for extension, e := range sorted(c.Retrieval.Extractors) {
		limit := cmp.Or(e.Timeout, loader.ExtractorTime)
		if e.URL != "" {
			loaders[extension] = loader.Service{URL: e.URL, Time: limit}
			continue
		}
		if _, err := exec.LookPath(e.Command[0]); err != nil {
			return nil, c.origin.locate(bad(join("retrieval.extractors", extension)+".command",
				"there is no program %s that can be run; install it, or give its whole path", e.Command[0]))
		}
		loaders[extension] = loader.Command{Args: e.Command, Time: limit}
	}
	return loaders, nil
}

// Rerank is a model behind an endpoint of its own that puts the best passages of a
// search into their order.
type Rerank struct {
	URL       string        `yaml:"url" check:"omitempty,url"`             // the whole address of the route; empty: none
	Model     string        `yaml:"model"`                                 // as the endpoint names it; empty: its only one
	Top       int           `yaml:"top" default:"50" check:"range=2..100"` // passages that it sees
	Timeout   time.Duration `yaml:"timeout" default:"2s" check:"positive"` // of one search
	APIKeyEnv Variable      `yaml:"api_key_env"`                           // names the variable that holds the key
}

// Engine is a cluster of Weaviate that finds candidates in collections, in place of an index in each apiserver.
type Engine struct {
	URLs      []string `yaml:"urls" check:"dive,url"`  // of its nodes; empty: the index in the process
	Class     string   `yaml:"class" default:"Mneme"`  // what another installation in the same cluster does not use
	Replicas  int      `yaml:"replicas" check:"min=0"` // nodes that have each collection, when the class is made; 0: all
	APIKeyEnv Variable `yaml:"api_key_env"`            // names the variable that holds the key
}
