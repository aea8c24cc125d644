package number

import (
	"strconv"
	"strings"
)

// words are the words of numbers in English, Russian and German. Zero is left out: it says "no" more often than it
// counts. Below 0 are words that mean something else in other languages.
var words = valuesByWord(`
1 one один одна одну одного одной ein eine 2 two два две двух двум двумя zwei 3 three три трех трем тремя drei 4
four четыре четырех четырем четырьмя четверых vier 5 five пять пяти пятью fünf 6 six шесть шести шестью sechs 7 seven семь
семи sieben 8 eight восемь восьми acht 9 nine девять девяти девятью neun 10 ten десять десяти десятью zehn 11 eleven
одиннадцать одиннадцати 12 twelve dozen dutzend дюжина двенадцать двенадцати zwölf 13 thirteen тринадцать тринадцати dreizehn 14 fourteen
четырнадцать четырнадцати vierzehn 15 fifteen пятнадцать пятнадцати fünfzehn 16 sixteen шестнадцать шестнадцати
sechzehn 17 seventeen семнадцать семнадцати siebzehn 18 eighteen восемнадцать восемнадцати achtzehn 19 nineteen
девятнадцать девятнадцати neunzehn 20 twenty двадцать двадцати zwanzig 30 thirty тридцать тридцати dreißig 40 forty
сорок сорока vierzig 50 fifty пятьдесят пятидесяти fünfzig 60 sixty шестьдесят шестидесяти sechzig 70 seventy
семьдесят семидесяти siebzig 80 eighty восемьдесят восьмидесяти achtzig 90 ninety девяносто neunzig 100 hundred сто
ста hundert 200 двести двухсот 300 триста трехсот 400 четыреста четырехсот 500 пятьсот пятисот 600 шестьсот шестисот
700 семьсот семисот 800 восемьсот восьмисот 900 девятьсот девятисот 1000 k thousand тысяча тысячи тысяч тысячу тыс
tausend 1000000 mln million millions миллион миллиона миллионов млн millionen 1000000000 billion миллиард миллиарда миллиардов
млрд milliarden
-2 deux dos -3 trois tres -4 quatre cuatro -5 cinq cinco -6 seis -7 sept siete -8 huit ocho -9 neuf nueve -10 dix diez
-11 elf`)

func valuesByWord(table string) map[string]float64 {
	words, value := map[string]float64{}, 0.0
	for w := range strings.FieldsSeq(table) {
		if n, err := strconv.ParseFloat(w, 64); err == nil {
			value = n
			continue
		}
		words[w] = value
	}
	return words
}
