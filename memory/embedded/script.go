package embedded

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	luajson "github.com/alicebob/miniredis/v2/gopher-json"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

// scripts runs Lua scripts, all of them in one Lua state, as Redis does. (miniredis makes a state with all its libraries
// for each run, which costs more than what our scripts do in it.) No script leaves anything there for the next: it can make no
// global variable.
type scripts struct {
	state *lua.LState                      // nil before the first script
	cache map[string]*lua.LFunction        // by the SHA-1 of the text, in hex
	call  func(args []string) (any, error) // runs a command, and returns what server.ParseReply does
}

// maxStack bounds the values that a script has at a time, an unpacked list of arguments above all.
const maxStack = 1 << 20

// open makes the state.
func (s *scripts) open() {
	s.state = lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 1 << 10, RegistryGrowStep: 1 << 10,
		RegistryMaxSize: maxStack, MinimizeStackMemory: true})
	l := s.state
	for name, open := range map[string]lua.LGFunction{"": lua.OpenBase, "table": lua.OpenTable, "string": lua.OpenString,
		"math": lua.OpenMath} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	luajson.Loader(l)
	l.SetGlobal("cjson", l.Get(-1))
	l.SetTop(0)
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":        s.redisCall,
		"pcall":       s.redisPcall,
		"error_reply": func(l *lua.LState) int { l.Push(table("err", l.CheckString(1))); return 1 },
	}))
	globals := l.NewTable()
	l.SetFuncs(globals, map[string]lua.LGFunction{
		"__newindex": func(l *lua.LState) int {
			l.RaiseError("Script attempted to create global variable '%s'", l.ToString(2))
			return 0
		},
		"__index": func(l *lua.LState) int {
			l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.ToString(2))
			return 0
		},
	})
	l.SetMetatable(l.G.Global, globals)
}

// run answers EVAL, EVALSHA and SCRIPT.
func (s *scripts) run(peer *server.Peer, args []string) {
	name := strings.ToUpper(args[0])
	switch {
	case name == "SCRIPT":
		s.manage(peer, args)
		return
	case len(args) < 3:
		peer.WriteError(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(name)))
		return
	}
	script, ok := s.cache[strings.ToLower(args[1])]
	if name == "EVAL" {
		var err error
		if script, err = s.load(args[1]); err != nil {
			peer.WriteError(err.Error())
			return
		}
	} else if !ok {
		peer.WriteError("NOSCRIPT No matching script. Please use EVAL.")
		return
	}
	keys, err := strconv.Atoi(args[2])
	if err != nil || keys < 0 || keys > len(args)-3 {
		peer.WriteError("ERR the number of keys is none, or greater than the number of arguments")
		return
	}
	s.eval(peer, script, args[3:3+keys], args[3+keys:])
}

// manage answers SCRIPT. Only LOAD is supported.
func (s *scripts) manage(peer *server.Peer, args []string) {
	if len(args) != 3 || !strings.EqualFold(args[1], "LOAD") {
		peer.WriteError("ERR unknown subcommand or wrong number of arguments for 'SCRIPT'")
	} else if _, err := s.load(args[2]); err != nil {
		peer.WriteError(err.Error())
	} else {
		peer.WriteBulk(sha1Hex(args[2]))
	}
}

// load compiles a script, and keeps it.
func (s *scripts) load(text string) (*lua.LFunction, error) {
	sha := sha1Hex(text)
	if script := s.cache[sha]; script != nil {
		return script, nil
	}
	if s.state == nil {
		s.open()
	}
	script, err := s.state.Load(strings.NewReader(text), "user_script")
	if err != nil {
		return nil, fmt.Errorf("ERR Error compiling script (new function): %s", oneLine(err.Error()))
	}
	s.cache[sha] = script
	return script, nil
}

// eval runs a script and writes what it returns. What it wrote before an error stays, as in Redis.
func (s *scripts) eval(peer *server.Peer, script *lua.LFunction, keys, args []string) {
	l := s.state
	defer l.SetTop(0)
	l.G.Global.RawSetString("KEYS", list(l, keys))
	l.G.Global.RawSetString("ARGV", list(l, args))
	l.Push(script)
	err := l.PCall(0, 1, nil)
	if err == nil {
		writeReply(peer, l.Get(-1))
		return
	}
	var failed *lua.ApiError
	if errors.As(err, &failed) {
		if t, ok := failed.Object.(*lua.LTable); ok { // the error of a command
			writeReply(peer, t)
			return
		}
		if failed.Cause == nil {
			err = errors.New(failed.Object.String())
		}
	}
	peer.WriteError("ERR " + oneLine(err.Error()))
}

// redisCall is redis.call, which raises a command's error.
func (s *scripts) redisCall(l *lua.LState) int {
	reply, failed := s.command(l)
	if failed {
		l.Error(reply, 1)
	}
	l.Push(reply)
	return 1
}

// redisPcall is redis.pcall, which returns a command's error as a table.
func (s *scripts) redisPcall(l *lua.LState) int {
	reply, _ := s.command(l)
	l.Push(reply)
	return 1
}

// command runs the command that is on the stack.
func (s *scripts) command(l *lua.LState) (reply lua.LValue, failed bool) {
	args := make([]string, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = v.String()
		default:
			return table("err", "ERR Lua redis lib command arguments must be strings or integers"), true
		}
	}
	if len(args) == 0 {
		return table("err", "ERR Please specify at least one argument for this redis lib call"), true
	}
	answer, err := s.call(args)
	if err != nil {
		return table("err", err.Error()), true
	}
	return fromReply(l, answer), false
}

// fromReply is a command's reply as Lua has it: nothing is false, a status a table.
func fromReply(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case nil:
		return lua.LFalse
	case int:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case server.Simple:
		return table("ok", string(r))
	case []any:
		t := l.CreateTable(len(r), 0)
		for _, v := range r {
			t.Append(fromReply(l, v))
		}
		return t
	}
	return lua.LString(fmt.Sprint(reply))
}

// writeReply writes what a script returned: a number is cut to an integer, false is nothing, and a list ends before
// its first nil.
func writeReply(peer *server.Peer, value lua.LValue) {
	switch v := value.(type) {
	case lua.LNumber:
		peer.WriteInt(int(v))
	case lua.LString:
		peer.WriteBulk(string(v))
	case *lua.LTable:
		if text := v.RawGetString("err"); text != lua.LNil {
			peer.WriteError(oneLine(text.String()))
			return
		}
		if text := v.RawGetString("ok"); text != lua.LNil {
			peer.WriteInline(oneLine(text.String()))
			return
		}
		n := v.Len()
		for i := 1; i <= n; i++ {
			if v.RawGetInt(i) == lua.LNil {
				n = i - 1
			}
		}
		peer.WriteLen(n)
		for i := 1; i <= n; i++ {
			writeReply(peer, v.RawGetInt(i))
		}
	default:
		if v == lua.LTrue {
			peer.WriteInt(1)
			return
		}
		peer.WriteNull()
	}
}

// list is a list of texts as Lua has it.
func list(l *lua.LState, texts []string) *lua.LTable {
	t := l.CreateTable(len(texts), 0)
	for _, text := range texts {
		t.Append(lua.LString(text))
	}
	return t
}

// table is a table of one field.
func table(field, text string) *lua.LTable {
	t := &lua.LTable{Metatable: lua.LNil}
	t.RawSetString(field, lua.LString(text))
	return t
}

// oneLine is text as a reply of one line can have it.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func sha1Hex(text string) string {
	sum := sha1.Sum([]byte(text)) // the name that Redis gives a script
	return hex.EncodeToString(sum[:])
}
