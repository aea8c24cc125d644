package bench

import (
	"math/rand/v2"
	"strings"

	"mneme/memory"
)

// phrases are what the messages are made of: two scripts, quotes, line breaks.
var phrases = []string{
	"Выручка за третий квартал выросла на 12,4 % к прошлому году.",
	"The export \"orders-2025\" has 18,240 rows; 37 of them lack a region.",
	"Меня зовут Алия, я отвечаю за склад в Алматы.",
	"Conversion fell in week 41, right after the new checkout went live.",
	"Сравните, пожалуйста, два последних месяца и назовите причину.",
	"1. Check the returns.\n2. Check the stock levels.\n3. Compare both with May.",
	"Средний чек: 14 300 ₸, медиана: 9 850 ₸.",
	"SELECT region, sum(total) FROM orders GROUP BY region;",
	"По этим данным сезонность объясняет около двух третей роста.",
	"The remainder comes from one customer, so I would not plan with it.",
}

// message is the i-th message of a history: a question or a longer answer, the
// same bytes in every run. An exchange takes about 1.3 KB as stored, 10,000 messages
// take 6.7 MB.
func message(i int) memory.Message {
	rng := rand.New(rand.NewPCG(uint64(i), 3))
	m := memory.Message{Role: memory.RoleUser, Timestamp: 1763711157.25 + float64(i)}
	length := 120 + rng.IntN(160)
	if i%2 == 1 {
		m.Role, length = memory.RoleAssistant, 750+rng.IntN(360)
	}
	var text strings.Builder
	for text.Len() < length {
		if text.Len() > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(phrases[rng.IntN(len(phrases))])
	}
	m.Content = text.String()
	return m
}

// exchange is the question and the answer, of the first hundred pairs, whose size
// is nearest to the mean of them.
func exchange() [2]memory.Message {
	const pairs = 100
	var sizes [pairs]int
	sum := 0
	for i := range sizes {
		sizes[i] = len(message(2*i).Encode()) + len(message(2*i+1).Encode())
		sum += sizes[i]
	}
	off := func(i int) int { return max(sizes[i]-sum/pairs, sum/pairs-sizes[i]) }
	best := 0
	for i := range sizes {
		if off(i) < off(best) {
			best = i
		}
	}
	return [2]memory.Message{message(2 * best), message(2*best + 1)}
}

// array is the stored form of the first n messages.
func array(n int) []byte {
	b := []byte{'['}
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, message(i).Encode()...)
	}
	return append(b, ']')
}
