package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floors says which of our folders the packages of a folder may import, the most
// exact entry winning. Everything may import inside its own top-level folder
// unless its entry says otherwise.
var floors = map[string][]string{
	"memory":              {"memory"},
	"access":              {"=memory", "=memory/redisscript", "=memory/telemetry", "access"},
	"access/jsonbound":    {},
	"memory/journal":      {},
	"memory/embedded":     {"memory/journal"},
	"memory/event":        {"memory"},
	"memory/secrets":      {},
	"memory/telemetry":    {},
	"memory/tracing":      {"=memory/telemetry"},
	"memory/redisscript":  {"=memory"},
	"memory/processgroup": {},
	"memory/number":       {},
	"memory/textindex":    {"=memory", "memory/number"},
	"memory/recall":       {"=memory", "memory/textindex", "memory/recall"},
	"memory/envelope":     {"memory/number"},
	"memory/provenance":   {"=memory", "=memory/event", "=memory/envelope", "memory/number"},
	"proxy": {"proxy", "access", "=memory", "=memory/envelope", "=memory/provenance", "=memory/secrets",
		"=memory/telemetry", "=memory/tracing", "=memory/redisscript"},
	"proxy/lazyregexp":    {},
	"proxy/wire":          {"=memory/secrets"},
	"proxy/chatwire":      {"proxy/wire"},
	"proxy/responseswire": {"proxy/wire", "=proxy/chatwire"},
	"proxy/encoding":      {},
	"proxy/upstream":      {"proxy/wire", "proxy/encoding"},
	"proxy/offline":       {"proxy/wire", "proxy/lazyregexp"},
	"proxy/ledger":        {"proxy/wire"},
	"proxy/thinking":      {"proxy/wire", "proxy/ledger", "proxy/lazyregexp"},
	"proxy/conversation":  {"proxy/wire", "proxy/ledger"},
	"proxy/sanitize":      {"proxy/wire", "proxy/lazyregexp"},
	"proxy/usage":         {"proxy/wire", "=access/tally"},
	"proxy/redisstore":    {"=memory/redisscript", "=memory", "proxy/wire", "proxy/ledger", "proxy/copilot/chat"},

	"proxy/interactionswire": {"proxy/wire", "=proxy/chatwire"},

	"proxy/copilot":       {"=memory/processgroup"},
	"proxy/copilot/chat":  {"proxy/wire", "=proxy/copilot"},
	"subagent":            {"memory", "=access/fair", "subagent"},
	"master":              {"memory", "=access/fair", "subagent"},
	"apiserver":           {"memory", "access", "subagent", "master", "apiserver"},
	"apiserver/api":       {"=memory", "memory/event", "memory/secrets", "=access/fair", "=access/jsonbound", "apiserver/api/sse"},
	"apiserver/api/sse":   {},
	"webmemory":           {"memory", "access", "apiserver/api", "webmemory"},
	"webmemory/api":       {"access", "=memory", "memory/event", "apiserver/api"},
	"webmemory/problem":   {"memory", "access", "apiserver/api", "=webmemory/api"},
	"webmemory/node":      {"memory", "access", "apiserver/api", "=webmemory/api", "=webmemory/problem"},
	"webmemory/past":      {"memory", "access", "apiserver/api", "=webmemory/api", "=webmemory/problem", "=webmemory/node"},
	"webmemory/runs":      {"memory", "access", "apiserver/api", "=webmemory/api", "=webmemory/problem", "=webmemory/node", "=webmemory/past", "=webmemory/telling"},
	"webmemory/erase":     {"memory", "access", "apiserver/api", "=webmemory/api", "=webmemory/problem", "=webmemory/node", "=webmemory/past", "=webmemory/runs", "=webmemory/telling"},
	"webmemory/turns":     {"memory", "access", "apiserver/api", "=webmemory/api", "=webmemory/problem", "=webmemory/node", "=webmemory/past", "=webmemory/runs", "=webmemory/erase", "=webmemory/telling"},
	"webmemory/chats":     {"memory", "access", "apiserver/api", "=webmemory/api", "=webmemory/problem", "=webmemory/node", "=webmemory/past", "=webmemory/runs", "=webmemory/erase", "=webmemory/turns", "=webmemory/telling"},
	"webmemory/openapi":   {},
	"webmemory/mcpserver": {"=access/fair", "=access/jsonbound", "=memory", "memory/event", "memory/telemetry", "=apiserver/api", "webmemory/api"},
	"webmemory/openaiapi": {"=access", "=access/fair", "=access/jsonbound", "=memory", "=memory/envelope", "memory/event", "memory/secrets", "=proxy/wire", "=proxy/chatwire", "=proxy/responseswire", "apiserver/api", "webmemory/api"},
	"webmemory/uistream":  {"=access", "=access/fair", "=access/jsonbound", "=memory", "memory/event", "memory/secrets", "apiserver/api", "webmemory/api", "=webmemory/openaiapi", "=webmemory/problem"},
	"webmemory/web":       {},
	"deploy/examples":     {"=access", "=memory", "memory/event", "=apiserver/api", "webmemory/api"},
	"cmd":                 {"memory", "access", "proxy", "subagent", "master", "apiserver", "webmemory", "cmd"},
	"cmd/mneme/services":  {"=cmd/mneme/internal/app", "=cmd/mneme/internal/config"},

	"cmd/mneme/internal/certificate": {},
	"cmd/mneme/internal/crossorigin": {"=apiserver/api"},

	// Programs that measure and disturb the product, and no part of it.
	"scripts":             {},
	"scripts/bench":       {"memory", "internal"},
	"scripts/eval":        {"memory", "subagent", "webmemory/api", "=cmd/mneme/services", "scripts/eval"},
	"scripts/conformance": {"subagent/mcp", "=subagent/external"},
	"scripts/soak":        {"memory", "apiserver/api", "webmemory/api", "internal", "scripts/soak"},

	// Doubles that the tests of several towers share, and no package of the product.
	"internal":               {},
	"internal/stack":         {"internal/freeport"},
	"internal/redistest":     {"internal/freeport", "internal/stack"},
	"internal/responsestest": {"=proxy/wire"},
	"internal/upstreamtest":  {"proxy/wire", "internal/upstreamtest"},
	"internal/webmemorytest": {"memory", "master", "apiserver", "webmemory", "internal"},
	"internal/webtest":       {"memory", "apiserver/api", "webmemory/api"},
}

// homes are the only folders that may import a third party.
var homes = map[string][]string{
	"github.com/redis/go-redis": {"memory/bytecount", "memory/redisscript", "memory/redisstore", "internal/redistest",
		"internal/stack", "internal/webmemorytest", "access", "proxy/redisstore", "subagent/rag/docstore", "cmd", "scripts"},
	"github.com/sashabaranov/go-openai": {"subagent/openaimodel"},
	"github.com/r3labs/sse":             {"apiserver/api/sse"},
	"github.com/gin-gonic/gin":          {"webmemory", "apiserver", "proxy", "memory/telemetry"},
	"github.com/alicebob/miniredis":     {"memory/embedded"},
	"github.com/minio":                  {"memory/cold/s3"},
	"github.com/sourcegraph/jsonrpc2":   {"proxy/copilot", "internal/copilottest"},
	"github.com/tetratelabs/wazero":     {"subagent/rag/loader/pdfium"},
	"github.com/xuri/excelize":          {"subagent/rag/loader"},
	"github.com/modelcontextprotocol":   {"subagent/mcp", "webmemory/mcpserver"},
	"github.com/peterh/liner":           {"cmd/mneme/internal/term"},
	"github.com/go-analyze/charts":      {"scripts/bench"},
	"github.com/spf13/cobra":            {"cmd/mneme", "scripts"},
	"go.opentelemetry.io":               {"memory/tracing"},
	"github.com/google/jsonschema-go":   {"subagent", "apiserver/api", "webmemory/mcpserver"},
}

// A package imports only downward. The sources are read, since a test that asked
// the go command would stay cached after a violation.
func TestImportFloors(t *testing.T) {
	root := filepath.Join("..", "..")
	read := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(rel))
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		read++
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if ours, ok := strings.CutPrefix(imported, "mneme/"); ok {
				require.True(t, allowed(folder, ours), "%s may not import %s", rel, imported)
			}
			for party, rooms := range homes {
				if strings.HasPrefix(imported, party) {
					require.True(t, within(folder, rooms), "%s: %s belongs to %v", rel, party, rooms)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, read, 50, "the sources were found")
}

func allowed(folder, imported string) bool {
	rules, found := []string(nil), false
	for f := folder; f != "."; f = filepath.ToSlash(filepath.Dir(f)) {
		if rules, found = floors[f]; found {
			break
		}
	}
	return found && within(imported, rules)
}

// within says whether a folder is one of these or below one; "=x" is x alone.
func within(folder string, rooms []string) bool {
	for _, room := range rooms {
		if exact, only := strings.CutPrefix(room, "="); only && folder == exact ||
			!only && (folder == room || strings.HasPrefix(folder, room+"/")) {
			return true
		}
	}
	return false
}
