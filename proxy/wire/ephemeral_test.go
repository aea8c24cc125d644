package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/wire"
)

const (
	recalled = `{"type":"text","text":"<memory/>"}`
	question = `{"type":"text","text":"What?"}`
	marked   = `{"type":"text","text":"What?","cache_control":{"type":"ephemeral"}}`
	image    = `{"type":"image","source":{}}`
	result   = `{"type":"tool_result","tool_use_id":"t1","content":"found"}`
	called   = `{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"look","input":{}}]}`
)

func asked(content string) string { return `{"role":"user","content":` + content + `}` }

func TestEphemeralParts(t *testing.T) {
	for name, c := range map[string]struct {
		n             int
		with, without string
	}{
		"one before a text":    {1, asked(`[` + recalled + `,` + question + `]`), asked(`"What?"`)},
		"two":                  {2, asked(`[` + recalled + `,` + image + `,` + question + `]`), asked(`"What?"`)},
		"before an image":      {1, asked(`[` + recalled + `,` + image + `]`), asked(`[` + image + `]`)},
		"before a marked text": {1, asked(`[` + recalled + `,` + marked + `]`), asked(`[` + marked + `]`)},
		"before several":       {1, asked(`[` + recalled + `,` + image + `,` + question + `]`), asked(`[` + image + `,` + question + `]`)},
		"not in results": {1, asked(`[`+recalled+`,`+question+`]`) + `,` + called + `,` + asked(`[`+result+`]`),
			asked(`"What?"`) + `,` + called + `,` + asked(`[`+result+`]`)},
		"behind results": {1, called + `,` + asked(`[`+result+`,`+recalled+`,`+question+`]`),
			called + `,` + asked(`[`+result+`,`+question+`]`)},
		"not in an older one": {1, asked(`[`+question+`,`+question+`]`) + `,` + asked(`[`+recalled+`,`+question+`]`),
			asked(`[`+question+`,`+question+`]`) + `,` + asked(`"What?"`)},
	} {
		t.Run(name, func(t *testing.T) {
			request := func(messages string) string { return `{"model":"m","messages":[` + messages + `],"stream":true}` }
			o, err := wire.ReadOutline([]byte(request(c.with)))
			require.NoError(t, err)
			without, parts, err := o.TakeEphemeral(c.n)
			require.NoError(t, err)
			require.Equal(t, request(c.without), string(without.Body))
			require.Len(t, parts, c.n)
			again, err := without.PutEphemeral(parts)
			require.NoError(t, err)
			require.Equal(t, request(c.with), string(again.Body))
		})
	}
}

func TestNoEphemeralParts(t *testing.T) {
	for messages, why := range map[string]string{
		``:                          "no user message",
		asked(`[` + result + `]`):   "no user message",
		asked(`"What?"`):            "content parts of the newest user message: 0",
		asked(`null`):               "content parts of the newest user message: 0",
		`{"role":"user"}`:           "content parts of the newest user message: 0",
		asked(`[]`):                 "content parts of the newest user message: 0",
		asked(`[` + recalled + `]`): "content parts of the newest user message: 1",
		asked(`[` + recalled + `,` + recalled + `]`):                                   "nothing is left",
		asked(`[` + recalled + `,` + recalled + `,{"type":"text","text":" \n"}]`):      "nothing is left",
		asked(`[` + recalled + `,` + result + `,` + question + `]`):                    "part 2",
		asked(`["text",` + recalled + `,` + question + `]`):                            "part 1",
		asked(`[` + result + `,` + recalled + `,` + `{"type":"text","text":""}` + `]`): "nothing is left",
	} {
		o, err := wire.ReadOutline([]byte(`{"model":"m","messages":[` + messages + `]}`))
		require.NoError(t, err)
		_, _, err = o.TakeEphemeral(2)
		require.ErrorContains(t, err, why, messages)
	}
}
