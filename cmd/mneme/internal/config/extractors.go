package config

import (
	"cmp"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"mneme/subagent/rag/loader"
)

// Extractor is a program or a service that reads the files of an extension.
type Extractor struct {
	Command []string      `yaml:"command" env:"COMMAND"` // a program and its arguments
	URL     string        `yaml:"url" env:"URL"`
	Timeout time.Duration `yaml:"timeout" env:"TIMEOUT"` // for one file; 0: loader.ExtractorTime
}

var fileExtension = regexp.MustCompile(`^\.[a-z0-9]{1,16}$`)

func extractorKey(extension string) string { return join("retrieval.extractors", extension) }

func (r Retrieval) validateExtractors() error {
	for extension, e := range sorted(r.Extractors) {
		key := extractorKey(extension)
		if err := cmp.Or(
			when(!fileExtension.MatchString(extension), key,
				"a file's extension is needed, a full stop and small letters or digits, such as .pdf"),
			when(len(e.Command) > 0 && e.URL != "", key, "command and url are both set; keep one of them"),
			when(slices.Contains(e.Command, ""), key+".command",
				"an empty word in it; a program and its arguments are needed, such as [pdftotext, -, -]"),
			when(len(e.Command) == 0 && e.URL == "", key,
				"says nothing; give a command, such as [pdftotext, -, -], or a url, such as http://127.0.0.1:9998/tika"),
			optional(baseURL, key+".url", e.URL),
			when(e.Timeout < 0, key+".timeout", "must be more than 0, is %s", e.Timeout),
		); err != nil {
			return err
		}
	}
	return nil
}

// Loaders are the extractors as a loader takes them. A command that is not installed
// is an error: an apiserver asks for it before it starts, nobody else needs the
// programs.
func (c Config) Loaders() (map[string]loader.Extractor, error) {
	all := map[string]loader.Extractor{}
	for extension, e := range sorted(c.Retrieval.Extractors) {
		limit := cmp.Or(e.Timeout, loader.ExtractorTime)
		if e.URL != "" {
			all[extension] = loader.Service{URL: e.URL, Time: limit}
			continue
		}
		if _, err := exec.LookPath(e.Command[0]); err != nil {
			return nil, c.origin.locate(bad(extractorKey(extension)+".command",
				"there is no program %s that can be run; install it, or give its whole path", e.Command[0]))
		}
		all[extension] = loader.Command{Args: e.Command, Time: limit}
	}
	return all, nil
}
