package textindex

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

func TestTerms(t *testing.T) {
	testtier.Slow(t)
	for _, c := range []struct{ name, text, want string }{
		{"English stems", "Running horses jumped", "run hors jump"},
		{"Russian stems", "Собаки бежали по улицам", "собак бежа улиц"},
		{"ё is е", "Ёлка ёлки", "елк елк"},
		{"decomposed letters", "мои\u0306 зеленыи\u0306", "зелен"},
		{"numbers and mixed words", "GPT-4o costs 20$ in 2026", "gpt 4o cost 20 2026"},
		{"grouped digits", "1,000,000 or 1’000 and 1,50, 12345,678", "1000000 1000 1 50 12345 678"},
		{"raised figures", "500² 10⁶ 3½ 20 m² CO₂", "500 2 10 6 3 1 2 20 m2 co2"},
		{"digits of other scripts", "٥٠٠ १२ ５", "500 12 5"},
		{"stopwords of both languages", "what is the most что это о", ""},
		{"question words in their forms", "whose, which, how; каких, которыми, кем, чьих, откуда", ""},
		{"apostrophes", "don't 'quoted' dog’s you’ve", "quot dog"},
		{"compatibility forms", "ﬁle №５", "file no5"},
		{"Greek by its fragments, too", "ποταμός ποτάμια",
			"ποταμός __ποτ _ποτα _οταμ _ταμο _αμοσ _μοσ_ ποτάμια __ποτ _ποτα _οταμ _ταμι _αμια _μια_"},
		{"accents, in an English text, too", "the café of Zoë", "café __caf _cafe _afe_ zoë __zoe _zoe_"},
		{"a text that is not English", "Die Hauptstadt liegt nahe der Grenze",
			"die __die _die_ hauptstadt __hau _haup _aupt _upts _ptst _tsta _stad _tadt _adt_ liegt __lie _lieg _iegt _egt_ " +
				"nahe __nah _nahe _ahe_ grenz __gre _gren _renz _enze _nze_"},
		{"apostrophes that separate", "l'eau de l'île", "l eau __eau _eau_ de l île __ile _ile_"},
		{"Turkish", "İstanbul'daki ışıklar", "istanbul __ist _ista _stan _tanb _anbu _nbul _bul_ daki __dak _daki _aki_ " +
			"ışıklar __isi _isik _sikl _ikla _klar _lar_"},
		{"Arabic without its article", "المدرسة والمدرسة",
			"المدرسة __مدر _مدرس _درسة _رسة_ والمدرسة __مدر _مدرس _درسة _رسة_"},
		{"Chinese in characters and pairs", "東京都 2026年", "東 東京 京 京都 都 2026 年"},
		{"Japanese", "東京のネコー", "東 東京 京 京の のネ ネコ コー"},
		{"Korean without its particles", "서울에서", "서울 울에 에서"},
		{"Thai with its marks", "ที่นี่", "ที่นี่"},
		{"Thai question words", "แมว ชื่อ อะไร", "แม แมว มว ชื่อ"},
		{"numbers are of no language", "Core GPT5 driver tables", "core gpt5 driver tabl"},
		{"Thai in pairs and threes", "แมวดำ", "แม แมว มว มวดํ วดํ วดํา ดํา"},
		{"a character alone", "ん", "ん"},
		{"nothing", " — … !", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, strings.Join(Terms(c.text), " "))
		})
	}
	long := strings.Repeat("x", 1000)
	require.Equal(t, []string{long}, Terms(long))
	// One word that is as long as a text, and has as many parts.
	require.Len(t, Terms(strings.Repeat("x'", 1<<20)), 1<<20)
	require.Len(t, Terms(strings.Repeat("xん", 1<<20)), 2<<20)
}

// A question finds what answers it in other words' forms, also where nothing separates words.
func TestAnswersAreFoundInManyScripts(t *testing.T) {
	for _, c := range []struct{ language, question, answer, other, another string }{
		{"Chinese", "我的猫叫什么名字？", "我家的猫名字是小白，很喜欢睡觉。", "今天的天气很好，我们去公园散步。", "明天早上有一个会议。"},
		{"Japanese", "犬の名前は何ですか。", "うちの犬はポチという名前です。", "昨日は東京で雨が降りました。", "会議は三時からです。"},
		{"Korean", "고양이 이름이 뭐였지?", "우리 고양이의 이름은 나비예요.", "어제는 서울에서 비가 왔어요.", "회의는 세 시에 있어요."},
		{"Thai", "แมวของฉันชื่ออะไร", "แมวที่บ้านชื่อว่าส้มและชอบนอน", "เมื่อวานฝนตกที่กรุงเทพ", "ประชุมเริ่มตอนบ่ายสาม"},
		{"Lao", "ແມວຂອງຂ້ອຍຊື່ຫຍັງ", "ແມວຢູ່ເຮືອນຊື່ສົ້ມ", "ມື້ວານຝົນຕົກຢູ່ວຽງຈັນ", "ປະຊຸມຕອນບ່າຍ"},
		{"Khmer", "ឆ្មារបស់ខ្ញុំឈ្មោះអ្វី", "ឆ្មានៅផ្ទះឈ្មោះមី", "ម្សិលមិញមានភ្លៀងនៅភ្នំពេញ", "ប្រជុំនៅពេលរសៀល"},
		{"Burmese", "ကျွန်တော့်ကြောင်နာမည်ဘာလဲ", "အိမ်ကကြောင်ရဲ့နာမည်ကရွှေဝါ", "မနေ့က ရန်ကုန်မှာ မိုးရွာတယ်", "အစည်းအဝေးက ညနေမှာ"},
		{"Turkish", "Ankara'da hangi müzeleri gezdik?", "Geçen yaz Ankara'nın müzesinde harika bir gün geçirdik.",
			"Yarın sabah toplantı var.", "Kedim bütün gün uyudu."},
		{"German", "Welche Häuser wurden verkauft?", "Der Verkauf des alten Hauses am Hafen war einfach.",
			"Morgen treffen wir uns im Park.", "Die Katze schläft den ganzen Tag."},
		{"French", "Où est l'église ?", "Nous avons visité l'eglise du village.", "Le chat dort toute la journée.",
			"La réunion commence à trois heures."},
		{"Greek", "Τι έγινε στο μουσείο;", "Χθες είδαμε πολλά στα μουσεία της πόλης.", "Η γάτα κοιμάται.", "Αύριο βρέχει."},
		{"Arabic", "أين المدرسة؟", "بيتنا قريب من مدرسة الحي.", "القطة تنام طوال اليوم.", "غدا لدينا اجتماع."},
		{"Hindi", "लड़कों ने क्या खाया?", "उस लड़के ने आम खाए।", "कल दिल्ली में बारिश हुई।", "बैठक तीन बजे है।"},
		{"Ukrainian", "Де працює її сестра?", "Сестри їхні працюють у лікарні.", "Учора йшов дощ.", "Кіт спить."},
	} {
		t.Run(c.language, func(t *testing.T) {
			all := NewCollection()
			for i, text := range []string{c.other, c.answer, c.another} {
				all.Put(Document{ID: fmt.Sprint(i), Passages: []Passage{{Text: text}}})
			}
			found := all.Search(Query{Text: c.question, Limit: 3})
			require.NotEmpty(t, found.Hits)
			require.Equal(t, "1", found.Hits[0].Document)
		})
	}
}

func FuzzTerms(f *testing.F) {
	for _, s := range []string{"don't stop", "ёлки-палки", "a''b", "’", "ss's", "y", "ь", "\xff", "İstanbul"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, term := range Terms(text) {
			require.NotEmpty(t, term)
		}
	})
}
