package lazyregexp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/lazyregexp"
)

func TestAnExpressionIsCompiledOnceAtItsFirstUse(t *testing.T) {
	calls := 0
	r := lazyregexp.NewFunc(func() string { calls++; return `(\w)=(\d+)` })
	require.Zero(t, calls)
	require.True(t, r().MatchString("a=1"))
	require.Equal(t, []string{"b=2", "b", "2"}, r().FindStringSubmatch("a= b=2"))
	require.Equal(t, "1:a 2:b", r().ReplaceAllString("a=1 b=2", "$2:$1"))
	require.Equal(t, 1, calls)

	wrong := lazyregexp.New("(")
	require.Panics(t, func() { wrong().MatchString("") })
}
