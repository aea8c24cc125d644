package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// clientTools are the tools with a type of Anthropic's and no schema that the client runs, by prefix of their types.
// The schemas come from
// https://platform.claude.com/docs/en/agents-and-tools/tool-use/bash-tool and the pages text-editor-tool, memory-tool and
// computer-use-tool beside it.
var clientTools = []struct{ prefix, description, schema string }{
	{"bash_", "Runs a command in a persistent bash session, or restarts the session.",
		`{"type":"object","properties":{"command":{"type":"string","description":"The command to run. Required unless ` +
			`restart is true."},"restart":{"type":"boolean","description":"Whether to restart the session."}}}`},
	{"text_editor_", "Views, creates and edits text files.",
		editorSchema(`"view","create","str_replace","insert","undo_edit"`, "")},
	{"memory_", "Stores and reads files in the directory /memories, which persists between conversations. View the " +
		"directory before a task.", editorSchema(`"view","create","str_replace","insert","delete","rename"`,
		`,"old_path":{"type":"string","description":"The path to rename."},"new_path":{"type":"string","description":"The `+
			`new path."}`)},
	{"computer_", "Operates a computer by screenshots, the mouse and the keyboard. Coordinates are pixels of the screen.",
		`{"type":"object","properties":{"action":{"type":"string","enum":["key","type","mouse_move","left_click",` +
			`"left_click_drag","right_click","middle_click","double_click","triple_click","left_mouse_down","left_mouse_up",` +
			`"scroll","hold_key","wait","screenshot","cursor_position","zoom"]},"coordinate":{"type":"array","items":{"type":` +
			`"integer"},"description":"x and y."},"start_coordinate":{"type":"array","items":{"type":"integer"},"description":` +
			`"x and y where a drag begins."},"text":{"type":"string","description":"The text to type, or the keys."},` +
			`"scroll_direction":{"type":"string","enum":["up","down","left","right"]},"scroll_amount":{"type":"integer"},` +
			`"duration":{"type":"number","description":"Seconds."},"region":{"type":"array","items":{"type":"integer"},` +
			`"description":"x and y of two corners, for zoom."}},"required":["action"]}`},
}

// editorSchema is the schema of a tool with commands about files.
func editorSchema(commands, extra string) string {
	return `{"type":"object","properties":{"command":{"type":"string","enum":[` + commands + `]},"path":{"type":` +
		`"string","description":"The path of the file or directory."},"view_range":{"type":"array","items":{"type":"integer"},` +
		`"description":"The first and the last line to view."},"file_text":{"type":"string","description":"The content of ` +
		`the file to create."},"old_str":{"type":"string","description":"The text to replace."},"new_str":{"type":"string",` +
		`"description":"The text to put in its place."},"insert_line":{"type":"integer","description":"The line after ` +
		`which to insert."},"insert_text":{"type":"string","description":"The text to insert."}` + extra +
		`},"required":["command"]}`
}

// Function returns a tool that the client runs as a function with its documented schema. It reports false for a tool
// that its vendor runs.
func (t Tool) Function() (Tool, bool) {
	if t.Type == "" || t.Type == "custom" { // a function with a schema
		return t, true
	}
	for _, c := range clientTools {
		if strings.HasPrefix(t.Type, c.prefix) {
			t.Type, t.InputSchema, t.Description = "", jsontext.Value(c.schema), c.description
			for _, name := range slices.Sorted(maps.Keys(t.Other)) {
				if name != CacheControl {
					t.Description += " " + name + ": " + string(t.Other[name]) + "."
				}
			}
			t.Other = nil
			return t, true
		}
	}
	return t, false
}

// ToolName returns a name of at most most bytes, all of A-Z a-z 0-9 _ -. A name that is legal stays. Any other becomes
// its beginning and a hash of it, so that the same name always becomes the same.
func ToolName(name string, most int) string {
	legal := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	if len(name) <= most && !strings.ContainsFunc(name, func(c rune) bool { return !legal(c) }) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	clean := strings.Map(func(c rune) rune {
		if legal(c) {
			return c
		}
		return '_'
	}, name)
	return clean[:min(len(clean), most-9)] + "_" + hex.EncodeToString(sum[:4])
}

// Functions makes functions of a request's tools, for a vendor that takes nothing else. It leaves out the tools that
// another vendor runs and returns their types. It reports false, and changes nothing, if the request has no other tool or
// must call one of the removed tools.
func (r *Request) Functions() (dropped []string, ok bool) {
	var functions []Tool
	forced := ""
	if c := r.ToolChoice; c != nil && c.Type == "tool" {
		forced = c.Name
	}
	for _, t := range r.Tools {
		f, is := t.Function()
		switch {
		case is:
			functions = append(functions, f)
		case forced != "" && t.Name == forced:
			return []string{t.Type}, false
		case !slices.Contains(dropped, t.Type):
			dropped = append(dropped, t.Type)
		}
	}
	if len(functions) == 0 && len(dropped) > 0 && (r.ToolChoice == nil || r.ToolChoice.Type != "none") {
		return dropped, false
	}
	r.Tools = functions
	return dropped, true
}
