package speaker

import (
	"errors"
	"log/slog"
	"testing"

	"sluice.dev/sluice/internal/speaker/fsm"
)

// TestProblemsOfLeases: problems of Leases without a group are not reported, since they would never
// end.
func TestProblemsOfLeases(t *testing.T) {
	s := newSpeaker(options{pod: "fast-0", uid: "1", timing: fsm.Default}, slog.New(slog.DiscardHandler), nil)
	s.follows["fast-vip-0"] = func() {}
	for _, name := range []string{"fast-vip-0", "fast-vip-1"} {
		s.leaseProblem(name, errors.New("not found"))
	}
	if p := s.status().Problems; len(p) != 1 || p[0].Lease != "fast-vip-0" {
		t.Errorf("problems %+v", p)
	}
	s.leaseProblem("fast-vip-0", nil)
	if p := s.status().Problems; len(p) != 0 {
		t.Errorf("problems %+v, when all is well again", p)
	}
}
