package chatexport_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/chatexport"
)

// read reads an export, and gives its chats, what was left out and the error of the whole.
func read(service, export string) (chats []chatexport.Chat, broken []string, err error) {
	file, size := strings.NewReader(export), int64(len(export))
	err = chatexport.Read(file, size, service, func(c chatexport.Chat, why error) error {
		if why != nil {
			broken = append(broken, why.Error())
			return nil
		}
		chats = append(chats, c)
		return nil
	})
	return chats, broken, err
}

// said writes a chat as a line for each message.
func said(c chatexport.Chat) string {
	var b strings.Builder
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "%.2f %s %s %s|%s\n", m.Timestamp, m.Role, m.Authority, m.Source,
			strings.ReplaceAll(m.Content, "\n", "/"))
	}
	return b.String()
}

func archive(t *testing.T, files ...string) string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		require.NoError(t, err)
		_, err = w.Write([]byte(files[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.String()
}

// gpt is a conversation of ChatGPT with an edited question, a call of a tool, thoughts, an image and a hidden prompt.
const gpt = `{"title":"Поездка","create_time":1700000000.5,"update_time":1700000900,"conversation_id":"6f1c-01","id":"6f1c-01",
"current_node":"n9","moderation_results":[],"plugin_ids":null,"mapping":{
"root":{"id":"root","message":null,"parent":null,"children":["n1"]},
"n1":{"id":"n1","parent":"root","children":["n2"],"message":{"author":{"role":"system","name":null},"create_time":null,
 "content":{"content_type":"text","parts":[""]},"metadata":{"is_visually_hidden_from_conversation":true},"recipient":"all"}},
"n2":{"id":"n2","parent":"n1","children":["old","n3"],"message":{"author":{"role":"user"},"create_time":null,
 "content":{"content_type":"user_editable_context","user_profile":"I am a cook"},"metadata":{}}},
"old":{"id":"old","parent":"n2","children":["old2"],"message":{"author":{"role":"user"},"create_time":1700000001,
 "content":{"content_type":"text","parts":["Как доехать до Вены?"]},"metadata":{}}},
"old2":{"id":"old2","parent":"old","children":[],"message":{"author":{"role":"assistant"},"create_time":1700000002,
 "content":{"content_type":"text","parts":["Самолётом."]},"metadata":{}}},
"n3":{"id":"n3","parent":"n2","children":["n4"],"message":{"author":{"role":"user"},"create_time":1700000100.25,
 "content":{"content_type":"multimodal_text","parts":[{"content_type":"image_asset_pointer","asset_pointer":"file-service://file-q1","width":9},
 "Как доехать до Граца?"]},"metadata":{"attachments":[{"name":"plan.pdf","mime_type":"application/pdf"},{"name":"a.png","mime_type":"image/png"}]}}},
"n4":{"id":"n4","parent":"n3","children":["n5"],"message":{"author":{"role":"assistant"},"create_time":1700000101,
 "content":{"content_type":"thoughts","thoughts":[{"summary":"s","content":"hm"}]},"metadata":{}}},
"n5":{"id":"n5","parent":"n4","children":["n6"],"message":{"author":{"role":"assistant"},"create_time":1700000102,
 "content":{"content_type":"text","parts":["search(\"Graz\")"]},"recipient":"web.search","metadata":{}}},
"n6":{"id":"n6","parent":"n5","children":["n7"],"message":{"author":{"role":"tool","name":"web.search"},"create_time":1700000103,
 "content":{"content_type":"text","parts":["a timetable"]},"metadata":{}}},
"n7":{"id":"n7","parent":"n6","children":["n8"],"message":{"author":{"role":"assistant"},"create_time":1700000104,
 "content":{"content_type":"text","parts":["Поездом, 2 часа 35 минут."]},"recipient":"all","metadata":{}}},
"n8":{"id":"n8","parent":"n7","children":["n9"],"message":{"author":{"role":"user"},"create_time":null,
 "content":{"content_type":"multimodal_text","parts":[{"content_type":"audio_transcription","text":"Danke!","direction":"in"},
 {"content_type":"real_time_user_audio_video_asset_pointer","expiry_datetime":null}]},"metadata":{}}},
"n9":{"id":"n9","parent":"n8","children":[],"message":{"author":{"role":"assistant"},"create_time":1700000200,
 "content":{"content_type":"text","parts":["Gern."]},"channel":"final","metadata":{}}}}}`

const gptSaid = `1700000100.25 user user |[image: file-service://file-q1]//Как доехать до Граца?
1700000104.00 assistant agent ChatGPT|Поездом, 2 часа 35 минут.
1700000104.00 user user |Danke!
1700000200.00 assistant agent ChatGPT|Gern.
`

func TestChatGPT(t *testing.T) {
	for name, export := range map[string]string{
		"json":     " \n[" + gpt + "]",
		"archive":  archive(t, "chat.html", "<html>", "conversations.json", "["+gpt+"]", "user.json", "{}", "shared_conversations.json", "{"),
		"in parts": archive(t, "x/conversations-001.json", "[]", "x/conversations-000.json", "["+gpt+"]", "__MACOSX/x/._conversations-000.json", "\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			chats, broken, err := read("chatgpt", export)
			require.NoError(t, err)
			require.Empty(t, broken)
			require.Len(t, chats, 1)
			require.Equal(t, "chatgpt-6f1c-01", chats[0].ID())
			require.Equal(t, "Поездка", chats[0].Title)
			require.Equal(t, gptSaid, said(chats[0]))
		})
	}
}

func TestClaude(t *testing.T) {
	// With branches: the answer c was asked for anew, and d came of it; e answers a question that was edited away.
	const tree = `{"uuid":"u-2","name":"","summary":"","created_at":"2025-03-01T10:00:00.250000Z","chat_messages":[
{"uuid":"a","parent_message_uuid":"00000000-0000-4000-8000-000000000000","sender":"human","text":"Was?","content":[{"type":"text","text":"Was?"}],"created_at":null},
{"uuid":"e","parent_message_uuid":"a","sender":"assistant","text":"No.","content":[],"created_at":"2025-03-01T10:00:01Z"},
{"uuid":"c","parent_message_uuid":"a","sender":"assistant","text":"This block is not supported","content":[{"type":"thinking","thinking":"hm"},
 {"type":"tool_use","name":"repl"},{"type":"tool_result","content":[]},{"type":"text","text":"Das."},{"type":"text","text":"Und das."}],"created_at":"2025-03-01T10:00:02Z"},
{"uuid":"d","parent_message_uuid":"c","sender":"human","text":"Ja","attachments":[{"file_name":"n.txt","extracted_content":"long"}],"files":[{"file_name":"i.png"}],"created_at":"2025-03-01T10:00:03Z"}%s]}`
	const list = `{"uuid":"u-1","name":"A list","created_at":"2025-02-01T10:00:00Z","account":{"uuid":"q"},"chat_messages":[
{"sender":"human","text":"one","created_at":"2025-02-01T10:00:01Z"},
{"sender":"assistant","text":"two","created_at":"2025-02-01T10:00:02Z"},
{"uuid":"3","sender":"assistant","text":" ","created_at":"2025-02-01T10:00:03Z"}]}`
	chats, broken, err := read("claude", "\ufeff["+list+","+fmt.Sprintf(tree, "")+","+
		`{"uuid":"u-3","name":"empty","created_at":"2025-02-01T10:00:00Z","chat_messages":[]}`+"]")
	require.NoError(t, err)
	require.Empty(t, broken)
	require.Len(t, chats, 3)
	for i, id := range []string{"claude-u-1", "claude-u-2", "claude-u-3"} {
		require.Equal(t, id, chats[i].ID())
	}
	require.Equal(t, "1738404001.00 user user |one\n1738404002.00 assistant agent Claude|two\n", said(chats[0]))
	require.Equal(t, `1740823200.25 user user |Was?
1740823202.00 assistant agent Claude|Das.//Und das.
1740823203.00 user user |Ja//[file: n.txt]/long
`, said(chats[1]))
	require.Empty(t, chats[2].Messages)

	leaf := strings.Replace(fmt.Sprintf(tree, ""), `"summary":""`, `"current_leaf_message_uuid":"e"`, 1)
	chats, _, err = read("claude", "["+leaf+"]")
	require.NoError(t, err)
	require.Equal(t, "1740823200.25 user user |Was?\n1740823201.00 assistant agent Claude|No.\n", said(chats[0]))
}

func TestMem0(t *testing.T) {
	const bob = `{"id":"1","memory":"Moved to Graz","user_id":"bob","created_at":"2024-05-01T00:00:00.5-07:00","updated_at":"2025-05-01T00:00:00Z","metadata":null,"categories":["home"]}`
	const older = `{"id":"2","memory":"Любит чай","user_id":"bob","created_at":"2024-07-20T01:30:36.275141Z","updated_at":null}`
	const spaced = `{"id":"3","memory":"Is a nurse","user_id":"Анна К","created_at":"2024-07-20T01:30:36Z"}`
	const agent = `{"id":"4","memory":"Speak plainly","user_id":null,"agent_id":"helper"}`
	for name, export := range map[string]string{
		"results": `{"count":4,"next":null,"other":{"results":[1]},"results":[` + bob + "," + older + "," + spaced + "," + agent + `],"relations":[]}`,
		"list":    "[" + bob + "," + older + "," + spaced + "," + agent + "]",
		"lines":   bob + "\n" + older + "\n" + spaced + agent + "\n",
		"pages":   `[{"results":[` + bob + "," + spaced + `]},{"results":[` + agent + "," + older + `]},{"results":[]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			chats, broken, err := read("mem0", export)
			require.NoError(t, err)
			require.Empty(t, broken)
			require.Len(t, chats, 3)
			require.Equal(t, "mem0-bob", chats[0].ID())
			require.Equal(t, "1721439036.28 assistant agent mem0|Любит чай\n1746057600.00 assistant agent mem0|Moved to Graz\n",
				said(chats[0]))
			require.Equal(t, "mem0-helper", chats[1].ID())
			require.Equal(t, "mem0: Анна К", chats[2].Title)
			require.Regexp(t, `^mem0-[0-9a-f]{64}$`, chats[2].ID(), "no id here has such characters")
		})
	}
}

// What is wrong with a file is said, and what to do.
func TestWrongFiles(t *testing.T) {
	const claude = `[{"uuid":"u","chat_messages":[]}]`
	whole := archive(t, "conversations.json", "["+gpt+"]")
	for _, c := range []struct{ service, export, says string }{
		{"chatgpt", "", "there is nothing in it"},
		{"chatgpt", strings.Repeat("\n", 500), "there is nothing in it"},
		{"chatgpt", "<html>", "neither JSON nor the whole archive"},
		{"chatgpt", "PK", "nor the whole archive"},
		{"chatgpt", whole[:len(whole)-30], "nor the whole archive"},
		{"chatgpt", archive(t, "users.json", "[]"), "no conversations.json"},
		{"chatgpt", archive(t, "conversations.json", ""), "conversations.json: there is nothing in it"},
		{"chatgpt", claude, "this is what claude exports: use --from claude"},
		{"chatgpt", `{"results":[{"memory":"a"}]}`, "use --from mem0"},
		{"claude", "[" + gpt + "]", "use --from chatgpt"},
		{"mem0", "[" + gpt + "]", "use --from chatgpt"},
		{"chatgpt", `"text"`, "neither JSON nor the whole archive"},
		{"mem0", archive(t, "conversations.json", "[]"), "neither JSON nor the whole archive"},
		{"mem0", `{"results"`, "damaged or cut short"},
		{"mem0", `[{"results":[{"memory":"a"},`, "cut short behind entry 0"},
	} {
		_, _, err := read(c.service, c.export)
		require.ErrorContains(t, err, c.says, "%s: %.80s", c.service, c.export)
	}
}

// A conversation that cannot be read is named, and those around it are read.
func TestABrokenConversationIsLeftOut(t *testing.T) {
	circle := `{"title":"Kreis","id":"k","current_node":"a","mapping":{"a":{"parent":"b"},"b":{"parent":"a"}}}`
	gap := `{"title":"Lücke","id":"l","current_node":"a","mapping":{"a":{"parent":"gone"}}}`
	chats, broken, err := read("chatgpt", "["+strings.Join([]string{gpt, circle, `7`, `null`, `{}`, gap,
		`{"title":"Typ","id":"t","current_node":"a","mapping":[]}`, `{"id":"x","current_node":null,"mapping":{"a":{}}}`,
		`{"title":"No id","mapping":{}}`, strings.ReplaceAll(gpt, "6f1c-01", "6f1c 02")}, ",")+"]")
	require.NoError(t, err)
	require.Len(t, chats, 2)
	require.Equal(t, gptSaid, said(chats[1]))
	require.Regexp(t, `^chatgpt-[0-9a-f]{64}$`, chats[1].ID())
	require.Len(t, broken, 8)
	for i, says := range []string{`entry 2 ("Kreis"): .*"a" is missing, or stands behind itself`, `entry 3 (""): .*number`,
		"entry 4 .*shape", "entry 5 .*shape", `entry 6 ("Lücke"): .*"gone" is missing`, `entry 7 ("Typ"): .*array`,
		"entry 8 .*current_node", `entry 9 ("No id"): it has no id`} {
		require.Regexp(t, strings.NewReplacer("(", `\(`, ")", `\)`).Replace(says), broken[i])
	}

	chats, broken, err = read("chatgpt", "["+gpt+","+gpt[:200])
	require.ErrorContains(t, err, "cut short behind entry 1")
	require.Len(t, chats, 1, "what came before is there")
	require.Empty(t, broken)

	_, broken, err = read("claude", `[{"uuid":"u","name":"When","chat_messages":[{"sender":"human","text":"a","created_at":"yesterday"}]}]`)
	require.NoError(t, err)
	require.Len(t, broken, 1)
	require.Contains(t, broken[0], `cannot parse "yesterday"`)

	chats, broken, err = read("mem0", `[{"memory":"","user_id":"a"},{"memory":"b","user_id":"a"},{"memory":7}]`)
	require.NoError(t, err)
	require.Len(t, chats, 1)
	require.Len(t, broken, 2)
}

// What take returns ends the reading.
func TestTakeEndsTheReading(t *testing.T) {
	enough, took := errors.New("enough"), 0
	export := "[" + gpt + "," + gpt + "]"
	err := chatexport.Read(strings.NewReader(export), int64(len(export)), "chatgpt", func(chatexport.Chat, error) error {
		took++
		return enough
	})
	require.ErrorIs(t, err, enough)
	require.Equal(t, 1, took)
}
