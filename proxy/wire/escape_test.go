package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/wire"
)

func TestCheckText(t *testing.T) {
	t.Parallel()
	for body, says := range map[string]string{
		`{"a":"b\n\"\\"}`:                         "",
		`{"a":"\u0041\uD83D\ude00 \ud83d\uDE00"}`: "",
		`{"a":"\\u0000 \\\\ud83d"}`:               "",
		`{"a":"\u00`:                              "",
		`{"a":["b",{"c":"\u0000"}]}`:              `/a/1/c contains \u0000 (byte 16 of the body), which is no text. Remove it`,
		`{"a":"\\\u0000"}`:                        `/a contains \u0000 (byte 8 of the body)`,
		`{"a":"x\ud83d"}`:                         `/a contains \ud83d (byte 7 of the body)`,
		`{"a":"\ud83d\u0041"}`:                    `\ud83d (byte 6`,
		`{"a":"\ude00"}`:                          `\ude00 (byte 6`,
		`{"a":"\ud83d\ude00\ude00"}`:              `\ude00 (byte 18`,
		`{"a\u0000":1}`:                           `byte 3`,
	} {
		err := wire.CheckText([]byte(body))
		if says == "" {
			require.NoError(t, err, body)
		} else {
			require.ErrorContains(t, err, says, body)
		}
	}
}
