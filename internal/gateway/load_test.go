package gateway

import (
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// TestRestartNeeded checks the fields that take effect only after a restart.
func TestRestartNeeded(t *testing.T) {
	a := config.Default()
	b := a
	if got := restartNeeded(&a, &b); len(got) != 0 {
		t.Errorf("%v, though nothing changed", got)
	}
	b.StateDir, b.HandleKeys.File, b.Log.Format, b.Log.Level = "/state", "/keys", "json", "debug"
	b.Memory.HugePages = true
	if got := strings.Join(restartNeeded(&a, &b), " "); got != "stateDir handleKeys log.format memory" {
		t.Error(got)
	}
}
