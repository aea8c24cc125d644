package thinking_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/thinking"
)

// The words are from the threads that roleWords names.
func TestRefusedRoles(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]thinking.RefusedRole{
		"Failed to deserialize the JSON body into the target type: messages[3].role: unknown variant `system`, expected " +
			"`user` or `assistant` at line 1 column 99": thinking.RoleSystem,
		"Unable to generate parser for this template. Automatic parser generation failed: System message must be at the " +
			"beginning.": thinking.RoleSystem,
		"messages.3: role 'system' is not supported on this model":                                                      thinking.RoleSystem,
		"messages.1.role: Input should be 'user' or 'assistant'":                                                        thinking.RoleSystem,
		"Invalid request: Incorrect role system.":                                                                       thinking.RoleSystem,
		"Unexpected role 'system' after role 'assistant'":                                                               thinking.RoleSystem,
		"System role not supported":                                                                                     thinking.RoleSystem,
		"Only user and assistant roles are supported!":                                                                  thinking.RoleSystem,
		"'messages[0].role' does not support 'system' with this model":                                                  thinking.RoleSystem,
		"messages.2: a system message must follow a user message and be last or be followed by an assistant message":    thinking.RoleSystem,
		"messages[1].role: unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`":          thinking.RoleDeveloper,
		"Input tag 'developer' found using 'role' does not match any of the expected tags: 'system', 'user'":            thinking.RoleDeveloper,
		"After the optional system message, conversation roles must alternate user/assistant/user/assistant/...":        thinking.RoleOrder,
		"messages: roles must alternate between \"user\" and \"assistant\", but found multiple \"user\" roles in a row": thinking.RoleOrder,
		"This model does not support assistant message prefill. The conversation must end with a user message.":         thinking.RolePrefill,
		"Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant":                 thinking.RolePrefill,
		"temperature: Input should be less than or equal to 1":                                                          thinking.RoleNone,
		"system: Input should be a valid list":                                                                          thinking.RoleNone,
	} {
		body, err := json.Marshal(map[string]any{"error": map[string]string{"message": said}})
		require.NoError(t, err)
		require.Equal(t, want, thinking.RefusedRoles(http.StatusBadRequest, body), said)
		require.Equal(t, thinking.RoleNone, thinking.RefusedRoles(http.StatusUnauthorized, body), said)
	}
	list := `{"detail":[{"type":"literal_error","loc":["body","messages",1,"role"],"msg":"Input should be 'user' or ` +
		`'assistant'","input":"system"}]}`
	require.Equal(t, thinking.RoleSystem, thinking.RefusedRoles(http.StatusUnprocessableEntity, []byte(list)))
}
