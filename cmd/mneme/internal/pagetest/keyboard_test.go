package pagetest

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// tabTo moves the focus, by the key Tab alone, to what has this name.
func (p *tab) tabTo(name string) {
	p.t.Helper()
	for range 60 {
		if p.focused() == name {
			return
		}
		p.press("\t")
	}
	p.t.Fatalf("Tab never came to %q", name)
}

// The main flow without a mouse.
func TestByKeyboard(t *testing.T) {
	_, s, p := visit(t)
	p.open("")
	p.sees("What should be remembered?")
	p.tabTo("Skip to the content")
	p.press("\r")
	p.tabTo(field)
	p.press("ask both")
	p.press("\r", chromedp.ModifierShift)
	p.press("about tea")
	p.press("\r")
	p.sees("They say: ")
	p.idle()
	require.Equal(t, "ask both\nabout tea", s.told(p.chat())[0])
	p.until("the field has the focus", func() bool { return p.focused() == field })
	p.press("\t")
	evaluate[bool](p, `document.activeElement.blur(), true`)
	p.press("/")
	require.Equal(t, "Search chats", p.focused())
	p.press("nothing like it")
	p.sees("No chat is called so.")
	p.press("\x1b")
	p.seesNo("No chat is called so.")

	p.tabTo(regenerate)
	p.press("\r")
	p.sees("What was taken back can be put back")
	p.idle()
	p.tabTo("Documents")
	p.press("\r")
	p.sees("No collections yet")
	p.tabTo("New collection")
	p.press("\r")
	p.until("the field", func() bool { return p.focused() == "New collection" })
	p.press("docs")
	p.press("\r")
	p.sees("searched by knowledge")
	p.tabTo("Delete the collection docs?")
	p.press("\r")
	p.sees("It holds no documents.")
	p.tabTo("Cancel")
	p.press("\r")
	p.until("the focus is back", func() bool { return p.focused() == "Delete the collection docs?" })
	p.tabTo("Русский")
	p.press("\r")
	p.sees("Коллекции")
}
