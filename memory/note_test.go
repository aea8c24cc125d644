package memory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSameNote(t *testing.T) {
	for _, same := range [][2]string{{"Likes tea.", "Likes tea"}, {"Likes tea, not coffee!", "Likes tea not  coffee"},
		{"The code is “4455”.", "The code is 4455"}} {
		require.True(t, SameNote(same[0], same[1]), same)
	}
	for _, other := range [][2]string{{"Version 3.5", "Version 35"}, {"Writes C#", "Writes C"}, {"Likes tea", "likes Tea"},
		{"-5 degrees", "5 degrees"},
		{"Allergic to nuts?", "Allergic to nuts."}, {".50", "50"}, {"example.com", "examplecom"}} {
		require.False(t, SameNote(other[0], other[1]), other)
	}
}
