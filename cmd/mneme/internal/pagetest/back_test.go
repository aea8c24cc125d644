package pagetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What was said is answered anew and corrected; what that takes back can be put back.
func TestTakingBack(t *testing.T) {
	m, s, p := visit(t)
	p.open("#/chats/back")
	p.send("Say one thing")
	p.sees("You said: Say one thing")
	p.idle()
	p.cutShort(m)
	second := p.beside()
	second.open("#/chats/back")
	second.sees("stopped early")

	m.hold()
	p.click("button", regenerate)
	second.seesIn("[aria-busy=true]", "The first half comes at once, up to the")
	m.release()
	p.sees(slowly, "What was taken back can be put back")
	p.idle()
	second.sees(slowly)
	second.idle()
	require.Equal(t, []string{"Stop when it comes slowly", slowly}, last(s.told("back"), 2))
	p.click("button", edit)
	p.write(edit, "Quickly then")
	p.press("\r")
	p.sees("You said: Quickly then")
	p.idle()
	require.Equal(t, []string{"Say one thing", "You said: Say one thing", "Quickly then", "You said: Quickly then"},
		s.told("back"))
	second.sees("You said: Quickly then")
	second.until("the end of "+slowly, func() bool { return !strings.Contains(second.textOf(".talk"), slowly) })

	p.open("#/memory/back/~aside")
	p.excuse("status of 409")
	p.clickFirst("button", "Put back")
	p.sees("Take back what was said since")
	require.Empty(t, p.barriers())
	p.click("button", "Take back what was said since, and put this in its place")
	p.sees("It is back.")
	require.Equal(t, []string{"Say one thing", "You said: Say one thing", "Stop when it comes slowly", slowly},
		s.told("back"))
}
