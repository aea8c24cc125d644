package thinking

import (
	"net/http"
	"slices"

	"mneme/proxy/lazyregexp"
)

// RefusedRole is a role, or an order of roles, that a vendor's error refuses.
type RefusedRole string

// The refusals of roles.
const (
	RoleNone      RefusedRole = ""
	RoleSystem    RefusedRole = "system"    // a system message, at its place or anywhere
	RoleDeveloper RefusedRole = "developer" // a developer message, or a role that the error does not name
	RoleOrder     RefusedRole = "order"     // user and assistant do not alternate
	RolePrefill   RefusedRole = "prefill"   // the last message is an answer
)

// roleWords are the wordings of each refusal, matched with a text normalised by spoken. Their sources:
// farion1231/cc-switch#3281, anthropics/claude-code#61412 and #77698, Alishahryar1/free-claude-code#1041,
// QwenLM/Qwen#956, songquanpeng/one-api#1135, tailcallhq/forgecode#1177, abetlen/llama-cpp-python#1580, maximhq/bifrost#3945;
// earendil-works/pi#1048, bramses/chatgpt-md#189, EKKOLearnAI/hermes-studio#1926; vllm-project/vllm#6862,
// suitenumerique/conversations#197, anthropics/claude-code#1162, datapizza-labs/datapizza-ai#98;
// strands-agents/sdk-python#1694, microsoft/autogen#6377, ggml-org/llama.cpp#20861; openclaw/openclaw#23115,
// earendil-works/pi#547, lmstudio-ai/lmstudio-bug-tracker#1586, nhaouari/obsidian-textgenerator-plugin#309.
var roleWords = []struct {
	is    RefusedRole
	words lazyregexp.Regexp
}{
	{RolePrefill, lazyregexp.New(`(?i)assistant message prefill|conversation must end with a user message|` +
		`expected last role user|when the last message is from the assistant|response prefill is incompatible|` +
		`last message must (?:be from|have role|be an?) .{0,20}\buser\b`)},
	{RoleDeveloper, lazyregexp.New(`(?i)unknown variant 'developer'|invalid value: '?developer|` +
		`(?:unexpected|incorrect|invalid|unsupported) role:? '?developer|` +
		`\brole:? '?developer'? (?:is )?(?:not supported|unsupported|not allowed)|does not support 'developer' with|` +
		`developer role (?:is )?not supported|input tag 'developer' found using 'role'|'?developer'? is not one of|` +
		`unexpected message role|property 'role' has invalid value|角色信息不正确|incorrect role information`)},
	{RoleSystem, lazyregexp.New(`(?i)unknown variant 'system'|` +
		`(?:unexpected|incorrect|invalid|unsupported) role:? '?system|` +
		`\brole:? '?system'? (?:is )?(?:not supported|unsupported|not allowed)|does not support 'system' with|` +
		`system (?:role|messages?) (?:is |are )?(?:not supported|unsupported|not allowed)|` +
		`input tag 'system' found using 'role'|'?system'? is not one of|` +
		`system messages? (?:must|should|can only|may only) (?:be|come|appear|stand|follow)|` +
		`only user(?:,| and) (?:and )?(?:assistant|model)(?:,? and tool)? roles are supported|` +
		`\brole\b.{0,40}input should be 'user' or 'assistant'`)},
	{RoleOrder, lazyregexp.New(`(?i)roles must alternate|must alternate between|multiple '\w+' roles in a row|` +
		`unexpected role 'user' after role|consecutive (?:user|assistant) messages|` +
		`no user query found`)},
}

// RefusedRoles reads an error with an HTTP status that refuses a role or an order of roles.
func RefusedRoles(status int, body []byte) RefusedRole {
	refused := []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError}
	if !slices.Contains(refused, status) || classOf(body) != ClassOther {
		return RoleNone
	}
	text := normalize(body)
	for _, w := range roleWords {
		if w.words().MatchString(text) {
			return w.is
		}
	}
	return RoleNone
}
