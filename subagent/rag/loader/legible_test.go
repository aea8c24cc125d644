package loader

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/charmap"

	"mneme/internal/outsidedata"
	"mneme/internal/testtier"
)

const prose = "The ferry leaves the northern harbour at half past seven in the morning and again at noon. " +
	"Passengers with a bicycle should " +
	"arrive twenty minutes before departure, because the deck is loaded from the far end. Tickets are sold on board; " +
	"children under six travel free of charge."

const russian = "Паром отходит от северной пристани в половине восьмого утра и ещё раз в полдень. Пассажирам с " +
	"велосипедом лучше прийти за двадцать " +
	"минут до отправления, потому что палубу загружают с дальнего конца. Билеты продают на борту; дети до шести лет " +
	"едут бесплатно."

// shifted is what a PDF without a character map gives: the numbers of the glyphs,
// which lie 29 below the letters.
func shifted(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' '+29 || r > '~' {
			return -1
		}
		return r - 29
	}, text)
}

func exchanged(text string) string {
	letters := []rune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	to := rand.New(rand.NewPCG(1, 2)).Perm(len(letters))
	return strings.Map(func(r rune) rune {
		if n := strings.IndexRune(string(letters), r); n >= 0 {
			return letters[to[n]]
		}
		return r
	}, text)
}

func misread(t *testing.T, text string, as, by *charmap.Charmap) string {
	bytes := []byte(text)
	if as != nil {
		encoded, err := as.NewEncoder().String(text)
		require.NoError(t, err)
		bytes = []byte(encoded)
	}
	decoded, err := by.NewDecoder().Bytes(bytes)
	require.NoError(t, err)
	return clean(string(decoded))
}

func TestIllegible(t *testing.T) {
	for name, text := range map[string]string{
		"shifted glyphs":             strings.Repeat(shifted(prose)+" ", 3),
		"exchanged letters":          strings.Repeat(exchanged(prose)+" ", 3),
		"unknown characters":         strings.Repeat("\ufffd\ufffd a\ufffd ", 30),
		"private characters":         strings.Repeat("\uf041\uf042 \uf043 ", 30),
		"Windows-1251 as 1252":       misread(t, russian, charmap.Windows1251, charmap.Windows1252),
		"KOI8-R as 1251":             misread(t, russian, charmap.KOI8R, charmap.Windows1251),
		"Russian UTF-8 as 1252":      misread(t, strings.ReplaceAll(russian, "\u0440\u0441", ""), nil, charmap.Windows1252),
		"Russian UTF-8 as 1251":      misread(t, russian, nil, charmap.Windows1251),
		"Russian 1251 read as 866":   misread(t, strings.Repeat(russian, 2), charmap.Windows1251, charmap.CodePage866),
		"unmapped and without words": strings.Repeat("q x zx vq kj wq xz ", 30),
	} {
		require.False(t, legiblePage(text, name == "unmapped and without words"), "%s: %+v", name, surveyOf(text))
	}
	code, sentence := refusal(t, "a.txt", misread(t, strings.Repeat(russian, 3), nil, charmap.Windows1251), Limits{})
	require.Equal(t, Illegible, code)
	require.Contains(t, sentence, "OCR")
}

func TestLegible(t *testing.T) {
	sums := ""
	for i := range 200 {
		sums += fmt.Sprintf("%d;%d.%02d;%d%%\n", i*7919, i*31, i%100, i)
	}
	noise := make([]byte, 3000)
	for i := range noise {
		noise[i] = byte(i * i * 31)
	}
	pages := map[string]string{
		"English": prose, "Russian": russian, "figures": sums, "nothing": "", "a number": "17",
		"Polish": "Prom odpływa z północnej przystani o wpół do ósmej rano i jeszcze raz w południe. Źdźbło, żółć, " +
			"szczęście, chrząszcz brzmi w trzcinie w Szczebrzeszynie.",
		"Greek":    "Το πλοίο φεύγει από το βόρειο λιμάνι στις επτά και μισή το πρωί και ξανά το μεσημέρι.",
		"Arabic":   "تغادر العبارة الميناء الشمالي في الساعة السابعة والنصف صباحا ومرة أخرى عند الظهر.",
		"Hindi":    "नौका उत्तरी बंदरगाह से सुबह साढ़े सात बजे और फिर दोपहर को निकलती है।",
		"Chinese":  "渡轮早上七点半从北港出发，中午再次出发。带自行车的乘客应提前二十分钟到达。",
		"Japanese": "フェリーは午前七時半に北港を出発し、正午に再び出発します。",
		"Korean":   "페리는 오전 일곱시 반에 북항을 출발하고 정오에 다시 출발합니다.",
		"Icelandic": "Ferjan fer frá norðurhöfninni klukkan hálf átta að morgni og aftur á hádegi. Þótt það sé hvasst á " +
			"sjó, þá siglir hún ævinlega.",
		"code": strings.Repeat("for i, r := range strconv.Itoa(n) { if tmp[i] == nil || ptr.next != cfg.fmt { err = "+
			"errors.Join(err, ctx.Err()) } }\n", 10),
		"a score": "Violent Dance For Orchestra Hu Haipeng Sul ponticello Molto cresc. appassionato molto " +
			strings.Repeat("\ue050\ue062 ", 30),
	}
	for name, text := range pages {
		require.True(t, legiblePage(text, false), "%s: %+v", name, surveyOf(text))
	}
	require.True(t, legiblePage(strings.Repeat(prose, 2), true), "glyphs without a map may still be right")
	for name, text := range map[string]string{
		"base64": base64.StdEncoding.EncodeToString(noise),
		"hashes": strings.Repeat("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n", 40),
		"a log":  strings.Repeat("2026-01-02T03:04:05Z kqxz[33]: wkrq=xvbn zzqp=0x7f pfx=[q]\n", 40),
	} {
		require.True(t, legible(text), "%s: %+v", name, surveyOf(text))
	}
}

// No document of the judged sets is illegible, as a page or otherwise.
func TestJudgedSetsAreLegibleOutsideData(t *testing.T) {
	testtier.Slow(t)
	files, err := filepath.Glob(filepath.Join(outsidedata.Path(t, "rag"), "*", "corpus.jsonl"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		n := 0
		for lines.Scan() {
			var d struct{ ID, Title, Text string }
			require.NoError(t, json.Unmarshal(lines.Bytes(), &d))
			n++
			text := clean(d.Title + "\n" + d.Text)
			require.True(t, legible(text) && legiblePage(text, false), "%s %s: %+v", name, d.ID, surveyOf(text))
		}
		t.Logf("%s: %d documents", filepath.Base(filepath.Dir(name)), n)
	}
}
