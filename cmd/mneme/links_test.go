package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	fencedText = regexp.MustCompile("(?ms)^```.*?^```$")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// A link in the documentation leads to a file that there is, and to one of its headings; the index leads to each page.
func TestTheLinksOfTheDocumentation(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "*/DESIGN.md", "*/*/DESIGN.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	require.Greater(t, len(pages), 20)
	text := func(path string) string {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		return fencedText.ReplaceAllString(string(raw), "")
	}
	indexed := map[string]bool{"../../docs/README.md": true}
	for _, page := range pages {
		for _, m := range linkTarget.FindAllStringSubmatch(inlineCode.ReplaceAllString(text(page), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, fragment, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if page == "../../docs/README.md" {
				indexed[target] = true
			}
			if fragment == "" || filepath.Ext(target) != ".md" {
				continue
			}
			there := false
			for _, h := range heading.FindAllStringSubmatch(text(target), -1) {
				there = there || slug(h[1]) == fragment
			}
			if !there {
				t.Errorf("%s links to %s, but %s has no such heading", page, m[1], target)
			}
		}
	}
	for _, page := range pages {
		if filepath.Base(filepath.Dir(page)) == "docs" && !indexed[page] {
			t.Errorf("docs/README.md does not lead to %s", page)
		}
	}
}

// slug is a heading as GitHub makes a link's fragment of it.
func slug(heading string) string {
	return strings.ReplaceAll(strings.ToLower(notInSlugs.ReplaceAllString(heading, "")), " ", "-")
}
