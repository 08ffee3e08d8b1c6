package iwarp

import (
	"testing"

	"go.uber.org/goleak"
)

func verifyTestMain(m *testing.M) { goleak.VerifyTestMain(m) }
