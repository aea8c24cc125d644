package number

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"500²": "500^2", "10⁻³": "10^−3", "¹500": "1) 500", "3½": "3^1⁄2", "3¹⁄₂": "3^1⁄2", "101₂": "101_2",
		"20 m² CO₂": "20 m2 CO2", "500.² So": "500.^2 So", "500①": "500^1", "(²)": "(2)", "٥٠٠٫٥ ५ ５": "500.5 5 5",
		"１，０００": "1,000", "ﬁle": "file",
	} {
		require.Equal(t, want, Fold(text), text)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"1,234,567.5": {"12345675e-1"}, "12,34,567": {"1234567e0"}, "1.000.000": {"1e6"}, "1’000": {"1e3"}, "10 000km": {"1e4"},
		"12 2024":         {"12e0", "2024e0"},
		"1,500":           {"15e-1", "15e2"},
		"500^2":           {"5e2"},
		"500 [2]":         {"5e2"},
		"10^-3":           {"1e-3"},
		"3.2 × 10^3":      {"32e2"},
		"1e6":             {"1e6"},
		"−5, 3-7, x-2":    {"-5e0", "3e0", "7e0", "2e0"},
		"-$5 or € −6":     {"-5e0", "-6e0"},
		"10 minus 5":      {"1e1", "5e0"},
		"温度は-5度":          {"-5e0"},
		"-5 chairs":       {"-5e0", "5e0"},
		"fell by 5 %":     {"-5e0", "5e0"},
		"fell to −5":      {"-5e0"},
		"5 °C below zero": {"-5e0", "5e0"},
		"7:30 pm":         {"19:30", "7:30 pm"}, "7.30 p.m.": {"19:30", "7:30 pm"}, "12:30 am": {"0:30"}, "19h30": {"19:30"},
		"7:30":               {"7:30", "7:30 pm"},
		"3 1⁄2":              {"35e-1"},
		"1⁄0":                nil,
		"two hundred fifty":  {"25e1"},
		"2.5 Million":        {"25e-1", "25e5"},
		"двадцать тысяч":     {"2e4"},
		"192.168.1.1":        {"192.168.1.1"},
		"1e999999999 ^ ^2 k": {"1e999999999"},
	} {
		var got []string
		for _, n := range Find(Fold(text)) {
			got = append(got, n.Values...)
		}
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(t, want, got, text)
	}
}

func TestDecimalsAreExact(t *testing.T) {
	t.Parallel()
	ascending := []string{"-1e400", "-10", "-9.5", "-.5", "0", "1e-400", ".05", "0.5", "2", "9007199254740992",
		"9007199254740993", "1e400"}
	for i, text := range ascending {
		a, ok := Parse(text)
		require.True(t, ok, text)
		for j, other := range ascending {
			b, _ := Parse(other)
			require.Equal(t, i < j, a.Compare(b) < 0, "%s and %s", text, other)
		}
	}
	for _, same := range [][2]string{{"2.50", "+25e-1"}, {"-0", "0"}, {"1E3", "1000"}} {
		a, _ := Parse(same[0])
		b, _ := Parse(same[1])
		require.Equal(t, a, b)
	}
	for _, text := range []string{"", ".", "-", "inf", "0x10", "1_0", "1e", "1 000", "1e9999999999"} {
		_, ok := Parse(text)
		require.False(t, ok, text)
	}
}
