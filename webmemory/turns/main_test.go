package turns_test

import (
	"testing"

	"mneme/internal/webmemorytest"
)

func TestMain(m *testing.M) { webmemorytest.Main(m) }
