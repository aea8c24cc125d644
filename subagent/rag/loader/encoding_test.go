package loader

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"

	"mneme/internal/testtier"
)

// undeclared are short texts and names in the encodings that programs wrote before UTF-8.
var undeclared = []struct {
	language    string
	encodings   []encoding.Encoding
	text, names string
}{
	{"Czech", centralEuropean, "Přístav otevíráme v sedm hodin ráno. Lodě z ostrova připlouvají každou " +
		"středu a převážejí čerstvé ryby. " +
		"Kapitán říká, že bouře ještě neskončila.", "Dvořák Čapek Němcová Šťastný"},
	{"Polish", centralEuropean, "Przystań otwieramy o siódmej rano. Łodzie z wyspy przypływają w każdą " +
		"środę i przywożą świeże ryby. " +
		"Kapitan mówi, że burza jeszcze się nie skończyła.", "Wałęsa Żeromski Dąbrowska Łukasz"},
	{"Hungarian", centralEuropean, "A kikötő reggel hétkor nyit. A szigetről minden szerdán jönnek a " +
		"hajók, és friss halat hoznak. " +
		"A kapitány szerint a vihar még nem ért véget, ezért őrzi a műszereket.", "Erdős Kőrösi Szűcs Gyöngyösi"},
	{"Romanian", centralEuropean[:2], "Portul se deschide la ora şapte dimineaţa. Bărcile de pe insulă " +
		"vin în fiecare miercuri şi aduc peşte proaspăt. " +
		"Căpitanul spune că furtuna încă nu s-a sfârşit.", "Ionuţ Brâncuşi Dragoş Rădulescu"},
	{"Croatian", centralEuropean, "Luka se otvara u sedam ujutro. Brodovi s otoka dolaze svake srijede " +
		"i donose svježu ribu za tržnicu. " +
		"Kapetan kaže da oluja još nije završila i da će čekati.", "Krleža Šimić Đorđević Čačić"},
	{"Slovak", centralEuropean, "Prístav otvárame o siedmej hodine ráno. Lode z ostrova priplávajú " +
		"každú stredu a prinášajú čerstvé ryby. " +
		"Kapitán hovorí, že búrka sa ešte neskončila a musíme počkať.", "Štefánik Ľudovít Kráľ Žitňan"},
	{"Slovenian", centralEuropean, "Pristanišče odpremo ob sedmih zjutraj. Čolni z otoka prihajajo " +
		"vsako sredo in prinašajo sveže ribe. " +
		"Kapitan pravi, da se nevihta še ni končala.", "Prešeren Čebular Žižek Kučan"},
	{"Turkish", []encoding.Encoding{charmap.Windows1254, charmap.ISO8859_9}, "Liman sabah yedide " +
		"açılıyor. Adadan gelen tekneler her çarşamba taze balık getiriyor. " +
		"Kaptan fırtınanın henüz bitmediğini söylüyor, İzmir'e dönmeyeceğiz.", "Yılmaz Şahin Çiğdem Öztürk Işık"},
	{"Greek", []encoding.Encoding{charmap.Windows1253, charmap.ISO8859_7}, "Το λιμάνι ανοίγει στις " +
		"επτά το πρωί. Τα πλοία από το νησί έρχονται κάθε Τετάρτη και φέρνουν φρέσκα ψάρια.",
		"Παπαδόπουλος Γιώργος Ελένη Νίκος"},
	{"Hebrew", []encoding.Encoding{charmap.Windows1255, charmap.ISO8859_8, charmap.CodePage862}, "הנמל " +
		"נפתח בשבע בבוקר. הסירות מהאי מגיעות בכל יום רביעי ומביאות דגים טריים. רב החובל אומר שהסערה עוד לא נגמרה.",
		"כהן לוי מזרחי אברהם"},
	{"Arabic", []encoding.Encoding{charmap.Windows1256, charmap.ISO8859_6}, "يفتح الميناء في الساعة " +
		"السابعة صباحا. تصل القوارب من الجزيرة كل يوم أربعاء وتحمل السمك الطازج.",
		"محمد أحمد فاطمة عبدالله"},
	{"Lithuanian", []encoding.Encoding{charmap.Windows1257, charmap.ISO8859_13, charmap.ISO8859_4},
		"Uostas atidaromas septintą valandą ryto. Laivai iš salos atplaukia kiekvieną trečiadienį ir " +
			"atveža šviežių žuvų.",
		"Žukauskas Šimkutė Čiurlionis Jūratė"},
	{"Latvian", []encoding.Encoding{charmap.Windows1257}, "Ostu atver septiņos no rīta. Laivas no " +
		"salas atbrauc katru trešdienu un atved svaigas zivis. Kapteinis saka, ka vētra vēl nav beigusies.",
		"Bērziņš Kalniņa Ozoliņš Jānis"},
	{"Estonian", []encoding.Encoding{charmap.Windows1257}, "Sadam avatakse kell seitse hommikul. " +
		"Saarelt tulevad paadid igal kolmapäeval ja toovad värsket kala. Kapten ütleb, et torm pole veel lõppenud.",
		"Tõnu Pärnu Jõgi Küünal"},
	{"German", western, "Der Hafen öffnet um sieben Uhr früh. Die Boote von der Insel kommen jeden " +
		"Mittwoch und bringen frische Fische für die Märkte. " +
		"Der Kapitän weiß, daß der Sturm noch nicht vorüber ist.", "Müller Größer Jäger Schröder"},
	{"French", western, "Le port ouvre à sept heures du matin. Les bateaux de l'île arrivent chaque " +
		"mercredi et apportent du poisson frais, pêché la nuit. " +
		"Le capitaine a décidé de rester à quai.", "Lefèvre Gérard François Noël"},
	{"Spanish", western, "El puerto abre a las siete de la mañana. Los barcos de la isla llegan cada " +
		"miércoles y traen pescado fresco. " +
		"El capitán dice que la tormenta todavía no terminó. ¿Quién lo espera?", "Muñoz Rodríguez García Íñigo"},
	{"Portuguese", western, "O porto abre às sete horas da manhã. Os barcos da ilha chegam às " +
		"quartas-feiras e não trazem só peixe. " +
		"O capitão diz que a tempestade ainda não acabou.", "João Gonçalves Conceição Magalhães"},
	{"Swedish", western, "Hamnen öppnar klockan sju på morgonen. Båtarna från ön kommer varje onsdag " +
		"och för med sig färsk fisk. " +
		"Kaptenen säger att stormen inte är över ännu.", "Åström Öberg Sjöström Hägg"},
	{"Danish", western, "Havnen åbner klokken syv om morgenen. Bådene fra øen kommer hver onsdag og " +
		"bringer friske fisk. " +
		"Kaptajnen siger, at stormen endnu ikke er ovre, så vi må vente på næste dag.", "Sørensen Kjær " +
		"Åse Nørgaard"},
	{"Italian", western, "Il porto apre alle sette. La città è piccola e perciò le barche arrivano più " +
		"tardi. Il capitano sarà già qui lunedì.",
		"Niccolò Giosuè Cantù Forlì"},
	{"Russian", []encoding.Encoding{charmap.Windows1251, charmap.KOI8R, charmap.CodePage866,
		charmap.MacintoshCyrillic, charmap.ISO8859_5,
		charmap.CodePage855},
		"Гавань открывается в семь часов утра. Лодки с острова приходят каждую среду и привозят свежую " +
			"рыбу.", "Иванов Щукина Ёлкин Юрьев"},
	{"Ukrainian", []encoding.Encoding{charmap.Windows1251, charmap.KOI8U}, "Гавань відчиняється о " +
		"сьомій годині ранку. Човни з острова приходять щосереди і привозять свіжу рибу.",
		"Шевченко Їжакевич Леся Ґудзь"},
	{"Bulgarian", []encoding.Encoding{charmap.Windows1251, charmap.CodePage866}, "Пристанището отваря " +
		"в седем часа сутринта. Лодките от острова идват всяка сряда и носят прясна риба.",
		"Георгиев Петкова Стоян Ваньо"},
	{"Serbian", []encoding.Encoding{charmap.Windows1251}, "Лука се отвара у седам ујутру. Чамци са " +
		"острва долазе сваке среде и доносе свежу рибу. Капетан каже да олуја још није прошла.",
		"Ђорђевић Љубица Његош Јовановић"},
	{"Japanese", []encoding.Encoding{japanese.ISO2022JP, japanese.ShiftJIS, japanese.EUCJP},
		"港は朝七時に開きます。島からの船は毎週水曜日に着き、新鮮な魚を運んできます。船長は嵐がまだ終わっていないと言います。", "田中さくら 山本太郎 ヤマダ 高橋"},
	{"Chinese", []encoding.Encoding{simplifiedchinese.HZGB2312, simplifiedchinese.GBK, simplifiedchinese.GB18030},
		"港口早上七点开门。岛上的船每个星期三都会来，带来新鲜的鱼。船长说暴风雨还没有结束，我们要等到明天。", "王小明 李华 张伟 陈国强"},
	{"Chinese, Traditional", []encoding.Encoding{traditionalchinese.Big5},
		"港口早上七點開門。島上的船每個星期三都會來，帶來新鮮的魚。船長說暴風雨還沒有結束，我們要等到明天。", "王小明 李華 張偉 陳國強"},
	{"Thai", []encoding.Encoding{charmap.Windows874}, "ท่าเรือเปิดเวลาเจ็ดโมงเช้า " +
		"เรือจากเกาะมาทุกวันพุธและนำปลาสดมาด้วย", "สมชาย มาลี ประเสริฐ"},
	{"Vietnamese", []encoding.Encoding{charmap.Windows1258}, "Đó là một bài hát hay của chúng tôi", "Đông Hùng"},
	{"Korean", []encoding.Encoding{korean.EUCKR}, "항구는 아침 일곱 시에 문을 엽니다. 섬에서 오는 배는 매주 수요일에 신선한 생선을 가지고 " +
		"옵니다. 선장은 폭풍이 아직 끝나지 않았다고 말합니다.",
		"김민수 이영희 박지훈 최수진"},
}

var (
	centralEuropean = []encoding.Encoding{charmap.Windows1250, charmap.ISO8859_2, charmap.CodePage852}
	western         = []encoding.Encoding{charmap.Windows1252, charmap.CodePage850, charmap.CodePage437, charmap.Macintosh}
)

// TestUndeclaredEncodings checks that an undeclared encoding is decoded right or refused.
func TestUndeclaredEncodings(t *testing.T) {
	testtier.Slow(t)
	right, refused := map[string]int{}, map[string]int{}
	for _, c := range undeclared {
		for _, e := range c.encodings {
			for kind, text := range map[string]string{"text": c.text, "few words" +
				"": fewWords(c.text), "names": nameRows(c.names)} {
				data, err := e.NewEncoder().String(text)
				if err != nil {
					continue // a letter that the encoding lacks
				}
				got, err := decode([]byte(data), "")
				if err == nil {
					require.Equal(t, text, got, "%s in %v, %s", c.language, e, kind)
					right[kind]++
					continue
				}
				require.Equal(t, Encoding, CodeOf(err), "%v", err)
				require.Contains(t, err.Error(), "?charset=")
				refused[kind]++
				t.Logf("%s in %v, %s: %v", c.language, e, kind, err)
			}
		}
	}
	t.Log("right:", right, "refused:", refused)
	require.Greater(t, right["text"], 7*refused["text"])
	require.Greater(t, right["names"], 2*refused["names"])
}

// fewWords returns an English text with the first three words of text that have a letter outside ASCII.
func fewWords(text string) string {
	var words []any
	for _, w := range strings.Fields(text) {
		if utf8.RuneCountInString(w) < len(w) && len(words) < 3 {
			words = append(words, strings.Trim(w, ".,¿?"))
		}
	}
	for len(words) < 3 {
		words = append(words, words[0])
	}
	const english = "The guide explains how the harbour works, when the boats leave and which rules " +
		"apply on board. "
	return strings.Repeat(english, 5) + fmt.Sprintf("On the quay a sign says %s, a second one %s and "+
		"the last one %s. ", words...) +
		strings.Repeat(english, 5)
}

func nameRows(names string) string {
	rows := "id,name,city\n"
	for i, name := range strings.Fields(names) {
		rows += fmt.Sprintf("%d,%s,London\n", i, name)
	}
	return rows
}
