package pagetest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
)

// picture draws an image of a type, of one colour.
func picture(t *testing.T, kind string, c color.Color) string {
	t.Helper()
	drawn := image.NewPaletted(image.Rect(0, 0, 120, 80), color.Palette{c, color.White})
	for x := 30; x < 90; x++ {
		for y := 20; y < 60; y++ {
			drawn.SetColorIndex(x, y, 1)
		}
	}
	var b bytes.Buffer
	switch kind {
	case "png":
		require.NoError(t, png.Encode(&b, drawn))
	case "jpeg":
		require.NoError(t, jpeg.Encode(&b, drawn, nil))
	case "gif":
		require.NoError(t, gif.Encode(&b, drawn, nil))
	}
	return b.String()
}

// aFile is one that a person takes into the hand.
type aFile struct{ name, kind, data string }

// hand gives files to what a selector of CSS finds, by an event as the browser makes it: a drop or a paste. A paste may
// have a text beside them.
func (p *tab) hand(selector, event, text string, files ...aFile) {
	p.t.Helper()
	all := []map[string]string{}
	for _, f := range files {
		all = append(all, map[string]string{"name": f.name, "kind": f.kind,
			"data": base64.StdEncoding.EncodeToString([]byte(f.data))})
	}
	raw, err := json.Marshal(all)
	require.NoError(p.t, err)
	evaluate[bool](p, `((files, text) => {
		const given = new DataTransfer();
		for (const f of files) {
			const bytes = Uint8Array.from(atob(f.data), (c) => c.charCodeAt(0));
			given.items.add(new File([bytes], f.name, { type: f.kind }));
		}
		if (text) given.setData("text/plain", text);
		const options = { bubbles: true, cancelable: true };
		document.querySelector(`+quoted(selector)+`).dispatchEvent(`+quoted(event)+` === "paste" ?
			new ClipboardEvent("paste", { ...options, clipboardData: given }) :
			new DragEvent(`+quoted(event)+`, { ...options, dataTransfer: given }));
		return true;
	})(`+string(raw)+`, `+quoted(text)+`)`)
}

// images waits until so many images stand in what a selector finds, each of them drawn.
func (p *tab) images(selector string, n int) {
	p.t.Helper()
	p.until("the images", func() bool {
		return evaluate[int](p, `((all) => all.every((i) => i.complete && i.naturalWidth === 120) ? all.length : -1)(
			[...document.querySelectorAll(`+quoted(selector+" img")+`)])`) == n
	})
}

// eyes is a model that sees images, or does not, and how many it was shown with each message.
type eyes struct {
	mu   sync.Mutex
	seen []int // guarded by mu
}

func (e *eyes) counts() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// look starts all services with a model that has eyes and gives a tab for their page.
func look(t *testing.T, chat upstreamtest.ChatRules) (*eyes, service, *tab) {
	t.Helper()
	t.Parallel()
	e := &eyes{}
	vendor := httptest.NewServer(upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: chat,
		Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
			a := upstreamtest.Reply(upstreamtest.Say("I have looked at it: " + r.User))
			if !strings.HasPrefix(r.User, "### Task:") {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.seen = append(e.seen, strings.Count(string(r.Body), `"image_url":{`))
			}
			return &a
		}}))
	t.Cleanup(vendor.Close)
	s := service{t, "http://" + run(t, "up", configuration(t), backendEnviron(vendor)...).Webmemory}
	return e, s, newTab(t, s.url)
}

const waiting = "ul[aria-label='Images that go with the message']"

// Images are added, dropped and pasted, taken away by keyboard, sent, and seen in the message; with another try they go
// along, and after a reload the page says that they were there.
func TestImages(t *testing.T) {
	e, s, p := look(t, upstreamtest.ChatRules{})
	red, blue := picture(t, "png", color.RGBA{200, 30, 30, 255}), picture(t, "jpeg", color.RGBA{30, 30, 200, 255})
	p.open("#/chats/seen")
	p.has("button", "Add images")
	p.choose(map[string]string{"red.png": red})
	p.images(waiting, 1)
	p.hand(".composer textarea", "paste", "", aFile{"blue.png", "image/png", blue}) // which is a JPEG
	p.images(waiting, 2)
	p.hand(".chat", "drop", "", aFile{"still.gif", "image/gif", picture(t, "gif", color.Black)},
		aFile{"ferry.md", "", "A ferry ticket costs 14 crowns."})
	p.images(waiting, 3)
	p.seesIn(".files", "ferry", "1 passage")
	p.hand(".composer textarea", "paste", "some words", aFile{"words.png", "image/png", red})
	require.Empty(t, p.barriers())

	p.open("#/chats/other") // they wait where they are
	p.images(waiting, 0)
	p.open("#/chats/seen")
	p.images(waiting, 3)
	p.tabTo("Remove still.gif")
	p.press("\r")
	p.images(waiting, 2)
	p.until("the field has the focus", func() bool { return p.focused() == field })

	p.send("What colours are these?")
	p.images(waiting, 0)
	p.sees("I have looked at it: What colours are these?")
	p.idle()
	p.images(".message.user", 2)
	p.seesIn(".bubble", "What colours are these?")
	require.NotContains(t, p.textOf(".bubble"), "[image")
	require.Equal(t, []int{2}, e.counts())
	require.Contains(t, s.told("seen")[0], "[image: image/png, ")
	require.Contains(t, s.told("seen")[0], "[image: image/jpeg, ")
	require.Empty(t, p.barriers())

	p.click("button", regenerate)
	p.until("another look", func() bool { return slices.Equal([]int{2, 2}, e.counts()) })
	p.idle()
	p.click("button", edit)
	p.write(edit, "And the shapes?")
	p.press("\r")
	p.sees("I have looked at it: And the shapes?")
	p.idle()
	require.Equal(t, []int{2, 2, 2}, e.counts())
	p.images(".message.user", 2)

	p.choose(map[string]string{"red.png": red})
	p.images(waiting, 1)
	p.has("button", "Send (Enter)")
	p.on("button", "Send (Enter)", false, `function () { return !this.disabled }`)
	p.click("button", "Send (Enter)") // an image is enough
	p.until("a look at one", func() bool { return slices.Equal([]int{2, 2, 2, 1}, e.counts()) })
	p.idle()
	p.reload()
	p.seesIn(".message.user", "And the shapes?", "2 images", "1 image")
	require.NotContains(t, p.textOf(".message.user"), "[image")
	p.click("button", "Русский")
	p.seesIn(".message.user", "2 изображения", "1 изображение")
}

// Each image that cannot go is told in a sentence, and the others go.
func TestImagesThatCannotGo(t *testing.T) {
	e, s, p := look(t, upstreamtest.ChatRules{NoImages: true})
	red := picture(t, "png", color.RGBA{200, 30, 30, 255})
	p.open("#/chats/blind")
	p.has("button", "Add images")
	give := func(files ...aFile) { p.hand(".chat", "drop", "", files...) }
	give(aFile{"drawing.svg", "image/svg+xml", "<svg/>"}, aFile{"broken.png", "image/png", "no image"})
	p.seesIn("[role=alert]", "drawing.svg is not sent: models are shown PNG, JPEG, GIF and WebP alone.", "broken.png")
	require.Empty(t, p.barriers())
	// A large file is made in the browser: it would take long to bring it there.
	evaluate[bool](p, `window.large = (name, bytes) => {
		const given = new DataTransfer();
		const red = Uint8Array.from(atob(`+quoted(base64.StdEncoding.EncodeToString([]byte(red)))+`), (c) => c.charCodeAt(0));
		given.items.add(new File([red, new Uint8Array(bytes)], name, { type: "image/png" }));
		document.querySelector(".chat").dispatchEvent(new DragEvent("drop", { bubbles: true, dataTransfer: given }));
		return true;
	}, true`)
	evaluate[bool](p, `window.large("large.png", 5 * 2 ** 20)`)
	p.seesIn("[role=alert]", "large.png is not sent: it is larger than 5 MiB.")
	p.seesNo("drawing.svg")
	for i := range 4 {
		evaluate[bool](p, `window.large("`+string(rune('a'+i))+`.png", 5 * 2 ** 20 - 2000)`)
		p.images(waiting, i+1)
	}
	evaluate[bool](p, `window.large("e.png", 2 ** 20)`)
	p.seesIn("[role=alert]", "e.png is not sent: all images of a message have at most 20 MiB.")
	for _, name := range []string{"a", "b", "c", "d"} {
		p.click("button", "Remove "+name+".png")
	}
	p.images(waiting, 0)
	p.seesNo("e.png")
	var many []aFile
	for i := range 9 {
		many = append(many, aFile{string(rune('a'+i)) + ".png", "image/png", red})
	}
	give(many...)
	p.images(waiting, 8)
	p.seesIn("[role=alert]", "i.png is not sent: a message takes at most 8 images.")
	require.Empty(t, p.barriers())

	p.send("What are these?")
	p.seesIn(".problem", "takes no images")
	p.idle()
	p.images(".message.user", 8)
	p.until("a title of words alone", func() bool { return p.textOf(".entry[aria-current] > .cut") == "What are these?" })
	require.NotContains(t, p.text(), "image_not_supported")
	require.Empty(t, e.counts())
	require.Len(t, s.told("blind"), 2)

	// What the service refuses comes back to the field.
	p.excuse("the server responded with a status of 400")
	p.open("#/chats/refused")
	p.sees("What should be remembered?")
	give(aFile{"sound.webp", "image/webp", "RIFF\x08\x00\x00\x00WAVEfmt "})
	p.has("button", "Remove sound.webp")
	p.send("What is this?")
	p.seesIn(".problem", "its first bytes are not of that type")
	p.has("button", "Remove sound.webp")
	p.until("the words", func() bool {
		return evaluate[string](p, `document.querySelector(".composer textarea").value`) == "What is this?"
	})
}
