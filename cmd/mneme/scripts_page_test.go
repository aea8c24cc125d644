package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

var (
	// scriptDeclaration matches a script in Go: its variable, and the names of the Lua files that form its source.
	scriptDeclaration = regexp.MustCompile(`(\w+)\s*=\s*redisscript\.New\(lua,([^)]*)\)`)
	quotedName        = regexp.MustCompile(`"(\w+)"`)
	codeSpan          = regexp.MustCompile("`([^`]+)`")
)

// scriptGlobals are the globals that Redis and the embedded store define, as far as our scripts use them.
var scriptGlobals = []string{"ARGV", "KEYS", "cjson", "ipairs", "math", "pcall", "redis", "string", "table", "tonumber",
	"tostring", "type", "unpack"}

// luaScript is a script as Go declares it.
type luaScript struct {
	variable string
	files    []string // paths of its Lua files from the root, in the order of its source
}

// luaFiles returns the paths of the product's Lua files, from the root. Files of tests end in _test.lua.
func luaFiles(t *testing.T) (paths []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !d.IsDir() && filepath.Ext(path) == ".lua" && !strings.HasSuffix(path, "_test.lua") {
			rel, err := filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(rel))
			return err
		}
		return nil
	}))
	require.Greater(t, len(paths), 50)
	return paths
}

// luaScripts returns the scripts that the packages of these Lua files declare.
func luaScripts(t *testing.T, files []string) (scripts []luaScript) {
	t.Helper()
	folders := map[string]bool{}
	for _, file := range files {
		folders[filepath.Dir(file)] = true
	}
	for folder := range maps.Keys(folders) {
		sources, err := filepath.Glob(filepath.Join("../..", filepath.Dir(folder), "*.go"))
		require.NoError(t, err)
		for _, source := range sources {
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			for _, m := range scriptDeclaration.FindAllStringSubmatch(string(text), -1) {
				script := luaScript{variable: m[1]}
				for _, name := range quotedName.FindAllStringSubmatch(m[2], -1) {
					script.files = append(script.files, folder+"/"+name[1]+".lua")
				}
				scripts = append(scripts, script)
			}
		}
	}
	return scripts
}

// docs/lua-scripts.md lists every Lua file of the product under its folder, with Go files that use a script made of it.
func TestThePageOfLuaScripts(t *testing.T) {
	page, err := os.ReadFile("../../docs/lua-scripts.md")
	require.NoError(t, err)
	files := luaFiles(t)
	variables := map[string][]string{}
	for _, script := range luaScripts(t, files) {
		for _, file := range script.files {
			variables[file] = append(variables[file], script.variable)
		}
	}
	var folder string
	var listed []string
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			folder = strings.TrimSpace(name)
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		columns := strings.Split(line, "|")
		require.Len(t, columns, 6, line)
		file := folder + "/" + strings.Trim(columns[1], " `")
		listed = append(listed, file)
		callers := codeSpan.FindAllStringSubmatch(columns[2], -1)
		require.NotEmpty(t, callers, file)
		for _, caller := range callers {
			text, err := os.ReadFile(filepath.Join("../..", filepath.Dir(folder), caller[1]))
			require.NoError(t, err, "docs/lua-scripts.md names the caller of %s", file)
			uses := slices.ContainsFunc(variables[file], func(name string) bool {
				return regexp.MustCompile(`\b` + name + `\b`).Match(text)
			})
			require.True(t, uses, "%s does not use %s: correct docs/lua-scripts.md", caller[1], file)
		}
	}
	require.ElementsMatch(t, files, listed, "docs/lua-scripts.md must list each Lua file once")
}

// Every Lua file is part of a script, and every script compiles and uses no global that Redis does not define.
func TestTheLuaScriptsCompile(t *testing.T) {
	files := luaFiles(t)
	used := map[string]bool{}
	for _, script := range luaScripts(t, files) {
		var source strings.Builder
		for _, file := range script.files {
			used[file] = true
			text, err := os.ReadFile(filepath.Join("../..", file))
			require.NoError(t, err)
			source.Write(text)
		}
		name := strings.Join(script.files, " + ")
		require.Empty(t, scriptFaults(source.String(), name), name)
	}
	require.ElementsMatch(t, files, slices.Collect(maps.Keys(used)), "a Lua file belongs to no script")
}

func TestFaultsOfLuaScripts(t *testing.T) {
	for source, fault := range map[string]string{
		"local n = 1\nif n then": "parse error",
		"local n = 1\nm = n":     "line 2 sets the global m",
		"local function f()\n  for i = 1, 2 do n = i end\nend\n": "line 2 sets the global n",
		"function f() end": "line 1 sets the global f",
		"local a\na = redis.call('GET', KEYS[1])\nreturn {b, a}":   "line 3 reads the global b",
		"local a = 1\nlocal function f() a = 2 end\nf()\nreturn a": "",
	} {
		faults := scriptFaults(source, "test")
		if fault == "" {
			require.Empty(t, faults)
			continue
		}
		require.Len(t, faults, 1, source)
		require.Contains(t, faults[0], fault)
	}
}

// scriptFaults returns the syntax error of a script, or the lines that set a global or read one that Redis does not
// define. The lines count from the beginning of the script's first file.
func scriptFaults(source, name string) []string {
	chunk, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		return []string{"parse error: " + err.Error()}
	}
	code, err := lua.Compile(chunk, name)
	if err != nil {
		return []string{"compile error: " + err.Error()}
	}
	return globalFaults(code)
}

// globalFaults looks for accesses to globals in compiled code. An instruction has the operation in its upper 6 bits,
// and the index of a global's name among the constants in its lower 18.
func globalFaults(code *lua.FunctionProto) (faults []string) {
	for i, instruction := range code.Code {
		operation, verb := int(instruction>>26), "reads"
		if operation == lua.OP_SETGLOBAL {
			verb = "sets"
		} else if operation != lua.OP_GETGLOBAL {
			continue
		}
		name := code.Constants[instruction&(1<<18-1)].String()
		if verb == "sets" || !slices.Contains(scriptGlobals, name) {
			faults = append(faults, "line "+strconv.Itoa(code.DbgSourcePositions[i])+" "+verb+" the global "+name)
		}
	}
	for _, inner := range code.FunctionPrototypes {
		faults = append(faults, globalFaults(inner)...)
	}
	return faults
}
