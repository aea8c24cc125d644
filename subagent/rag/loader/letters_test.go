package loader

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func makeBook(t testing.TB, more map[string]string) string {
	parts := map[string]string{
		"mimetype":               "application/epub+zip",
		"META-INF/container.xml": `<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>`,
		"OEBPS/book.opf": `<package><metadata><dc:title>The book</dc:title><dc:creator>Ann</dc:creator></metadata><manifest>
<item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/><item id="a" href="text/one%20a.xhtml" media-type="application/xhtml+xml"/>
<item id="b" href="text/two.xhtml" media-type="application/xhtml+xml"/><item id="i" href="i.png" media-type="image/png"/></manifest>
<spine><itemref idref="n"/><itemref idref="b"/><itemref idref="a"/><itemref idref="b"/><itemref idref="none"/></spine></package>`,
		"OEBPS/nav.xhtml": `<html><body><p>Contents</p></body></html>`,
		"OEBPS/text/one a.xhtml": `<html><head><title>x</title></head><body><h1>Last</h1><p>The end.<img ` +
			`src="i.png"/></p></body></html>`,
		"OEBPS/text/two.xhtml": `<?xml version="1.0"?><html><body><p>It begins.</p></body></html>`,
	}
	for name, content := range more {
		parts[name] = content
	}
	return makeZip(t, parts)
}

func TestBook(t *testing.T) {
	d := mustLoad(t, "a.epub", makeBook(t, nil))
	require.Equal(t, "The book", d.Title)
	require.Equal(t, map[string]string{"author": "Ann"}, d.Metadata)
	require.Equal(t, []string{"chapter 1: It begins.", "Last: The end."}, outline(d))
	require.Equal(t, map[string]int{"pictures": 1}, d.Skipped)

	method := `<encryption><EncryptedData><EncryptionMethod Algorithm="%s"/></EncryptedData></encryption>`
	mustLoad(t, "a.epub",
		makeBook(t, map[string]string{"META-INF/encryption.xml": fmt.Sprintf(method, "http://www.idpf.org/2008/embedding")}))
	code,
		sentence := refusal(t, "a.epub",
		makeBook(t, map[string]string{
			"META-INF/encryption.xml": fmt.Sprintf(method, "http://www.w3.org/2001/04/xmlenc#aes128-cbc"),
		}), Limits{})
	require.Equal(t, Encrypted, code)
	require.Contains(t, sentence, "DRM")
	code, _ = refusal(t, "a.epub", makeBook(t, map[string]string{"META-INF/container.xml": "<container/>"}), Limits{})
	require.Equal(t, Damaged, code)
}

func TestRTF(t *testing.T) {
	d := mustLoad(t, "a.rtf",
		`{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial;}{\f2\fcharset2 Symbol;}}{\colortbl;\red0;}
{\stylesheet{\s1 heading 1;}}{\info{\title The \u1080? title}{\author Ann}}{\*\generator x;}{\header Page header}
\pard\outlinelevel0 Guide\par
\pard Caf\'e9 \{open\} \u8212-{\f1 \'cf\'f0\'e8}\emdash\~end{\v hidden}.\par
{\pntext\f2\'b7\tab}item\line next{\footnote \pard A {\b note}.\par}\par
\uc2\u1103\'ff\'fe!\uc0\u-10179\u-8704 x\par
{\pict\pngblip 89504e47}{\*\shppict{\pict aa}}{\nonshppict{\pict bb}}{\field{\*\fldinst HYPERLINK "http://x"}{\fldrslt link}}\par
\trowd\cellx1\cellx2\pard\intbl Name\cell Days\par more\cell\row\trowd\pard\intbl Ann\cell 28\cell\row\pard After.\par
{\bin5 }}{{x}}`)
	require.Equal(t, "The и title", d.Title)
	require.Equal(t, []string{
		"Guide: Café {open} —При—\u00a0end.\n\n•\titem\nnext (A note.\n)\n\nя!😀x\n\nlink\n\n| Name | Days more |\n| Ann | " +
			"28 |\n\nAfter.",
	}, outline(d))
	require.Equal(t, map[string]int{"pictures": 2, "hidden pieces of text": 1, "headers and footers": 1}, d.Skipped)

	for content, want := range map[string]Code{
		`{\rtf1 text`:                                 Damaged,
		`{\rtf1 }`:                                    Empty,
		`{\rtf1 ` + strings.Repeat("{", 100_000):      TooLarge,
		`{\rtf1 \bin99999999999 x}`:                   Damaged,
		`{\rtf1 text\'`:                               Damaged,
		`{\rtf1 ` + strings.Repeat(`\u65?`, 50) + `}`: TooLarge,
	} {
		code, sentence := refusal(t, "a.rtf", content, Limits{Text: 30})
		require.Equal(t, want, code, "%.40s: %s", content, sentence)
	}
}

func TestMail(t *testing.T) {
	b64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	d := mustLoad(t, "a.eml", strings.ReplaceAll(`From ann Mon Jan  1 00:00:00 2026
From: =?koi8-r?B?4c7OwQ==?= <ann@x.example>
To: bob@x.example
Date: Thu, 22 Aug 2002 18:26:25 +0700
Subject: =?utf-8?Q?Caf=C3=A9?=
 plans
Content-Type: multipart/mixed; boundary=m

--m
Content-Type: multipart/alternative; boundary="a"

--a
Content-Type: text/plain; charset=windows-1251
Content-Transfer-Encoding: quoted-printable

=CF=F0=E8=E2=E5=F2, see =
you at three.

--a
Content-Type: text/html

<p>See you at <b>three</b>.
--a--
--m
Content-Type: text/csv; name="prices.csv"
Content-Disposition: attachment; filename="prices.csv"
Content-Transfer-Encoding: base64

`+b64("Tea,Price\nGreen,3\n")+`
--m
Content-Type: application/octet-stream; name="x.bin"

junk
--m
Content-Type: image/png

x
--m
Content-Type: text/html; name="page.html"
Content-Disposition: attachment

<p>before<h1>Head</h1><p>after
--m
Content-Type: message/rfc822

Subject: Inner

Forwarded text.
--m--
`, "\n", "\r\n"))
	require.Equal(t, "Café plans", d.Title)
	require.Equal(t, map[string]string{"from": "Анна <ann@x.example>", "to": "bob@x.example",
		"date": "2002-08-22T11:26:25Z"}, d.Metadata)
	require.True(t,
		strings.HasPrefix(d.Text,
			"From: Анна <ann@x.example>\nTo: bob@x.example\nDate: Thu, 22 Aug 2002 18:26:25 +0700\nSubject: Café "+
				"plans\n\nПривет, see you at three.\n\nattachment prices.csv\n\nTea: Green"), d.Text)
	require.Equal(t, []string{
		"attachment prices.csv: Tea: Green\nPrice: 3", "attachment page.html: before", "attachment page.html > Head: after",
		"attachment message.eml: Subject: Inner\n\nForwarded text.",
	}, outline(d))
	require.Equal(t, map[string]int{"attachments": 1, "pictures": 1}, d.Skipped)

	require.Equal(t, "Subject: x\n\nOnly HTML.",
		mustLoad(t, "a.eml", "Subject: x\nContent-Type: text/html\n\n<p>Only <b>HTML</b>.").Text)
	require.Equal(t, "Subject: x\n\nPlain ☺",
		mustLoad(t, "a.eml", "Subject: x\nbroken line\nContent-Type: nonsense\n\nPlain ☺").Text)
	code, _ := refusal(t, "a.eml", "Subject: x\nContent-Type: multipart/encrypted; boundary=x\n\n--x\n\ny\n--x--",
		Limits{})
	require.Equal(t, Encrypted, code)
	require.Equal(t, "Subject: x\n\nno end",
		mustLoad(t, "a.eml", "Subject: x\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\nno end").Text)
	code, sentence := refusal(t, "a.eml", strings.Repeat("Content-Type: message/rfc822\n\n", 1000), Limits{})
	require.Equal(t, TooLarge, code, sentence)
}

func TestHiddenHTML(t *testing.T) {
	d := mustLoad(t, "a.html",
		`<style>/* .all{display:none} */ @import "x"; .off, #gone{ display : none } .tab{display:none} .tab.open{display:block}
@media print { .menu{display:none} .off{color:red} } #on{display:block} p.x{display:none} .ghost{visibility:hidden!important}</style>
<style media=print>p{display:none}</style>
<body style="visibility:hidden"><p>Kept &lt;b&gt;.<p style="color:red;DISPLAY: none">no1<p hidden>no2<div style="font-size:0px">no3</div><p style="opacity: 0.0;">no4
<div class="a off"><p>no5</div><p id=gone>no6<p class=tab>tab<p class=menu>menu<p class=ghost>no7<template>no8</template><p style="opacity:0;transform:none">fades in
<div style="font-size:0"><span style="font-size:12px">sized</span></div><p style="opacity:0.5">half<p aria-hidden=true>said<p hidden=until-found>found<p class=x>no9<p class=off id=on>on`)
	require.Equal(t, "Kept <b>.\n\ntab\n\nmenu\n\nfades in\n\nsized\n\nhalf\n\nsaid\n\nfound\n\non", d.Text)
	require.Equal(t, map[string]int{"hidden pieces of text": 8}, d.Skipped)

	d = mustLoad(t, "a.html", `<div id="app" style="display:none"><h1>All</h1> of it</div><script>show()</script>`)
	require.Contains(t, d.Text, "All")
	require.Empty(t, d.Skipped)

	deep := mustLoad(t, "a.html", strings.Repeat("<div>", 600)+
		`<div hidden>no<div>no</div>no</div><p style="display:none">x<p>yes`)
	require.NotContains(t, deep.Text, "no")
	require.Contains(t, deep.Text, "yes")
}
