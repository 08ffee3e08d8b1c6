package credit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAdaptiveTranscripts plays the files of testdata, in virtual time. A line is a command, or the
// expected grants:
//
//	limits MIN MAX KIB          the budget in KiB; receives have 4 KiB
//	open NAME...                connections, which request 128
//	close NAME
//	asks NAME N                 it requests N from now on
//	calls NAME,NAME N in D      each makes N calls, spread over D
//	wait D
//	latency KIND D              of the backend from now on
//	= NAME GRANT, ..., PROMISED of BUDGET KiB[, at most CEILING]
//	= changes REASON+RAISED-LOWERED ...
func TestAdaptiveTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var s *adaptiveSim
			for i, line := range strings.Split(string(b), "\n") {
				f := strings.Fields(line)
				if len(f) == 0 || f[0] == "#" {
					continue
				}
				if f[0] == "=" {
					got := s.grants()
					if f[1] == "changes" {
						got = s.changes()
					}
					if want := strings.Join(f[1:], " "); got != want {
						t.Errorf("%s:%d: = %s, want %s", name, i+1, got, want)
					}
					continue
				}
				s = s.command(t, f)
				if s.memory() > s.p.Stats().Promised {
					t.Errorf("%s:%d: receives of %d bytes, %d are charged", name, i+1, s.memory(), s.p.Stats().Promised)
				}
			}
		})
	}
}

func (s *adaptiveSim) changes() string {
	out, st := []string{"changes"}, s.p.Stats()
	for r := range Reasons {
		if st.Raised[r]+st.Lowered[r] > 0 {
			out = append(out, fmt.Sprintf("%v+%d-%d", r, st.Raised[r], st.Lowered[r]))
		}
	}
	return strings.Join(out, " ")
}

func (s *adaptiveSim) command(t *testing.T, f []string) *adaptiveSim {
	t.Helper()
	number := func(i int) (n int) {
		if _, err := fmt.Sscan(f[i], &n); err != nil {
			t.Fatal(f, err)
		}
		return n
	}
	duration := func(i int) time.Duration {
		d, err := time.ParseDuration(f[i])
		if err != nil {
			t.Fatal(f, err)
		}
		return d
	}
	switch f[0] {
	case "limits":
		l := Limits{Min: number(1), Max: number(2), Memory: int64(number(3)) << 10, ReceiveSize: 4096}
		if s == nil {
			return newAdaptiveSim(t, l)
		}
		if err := s.p.SetLimits(l); err != nil {
			t.Fatal(err)
		}
	case "open":
		for _, name := range f[1:] {
			s.open(name)
		}
	case "close":
		s.conns[f[1]].account.Close()
		delete(s.conns, f[1])
		for i, n := range s.names {
			if n == f[1] {
				s.names = append(s.names[:i:i], s.names[i+1:]...)
			}
		}
	case "asks":
		s.conns[f[1]].asks = number(2)
	case "calls":
		s.busy(strings.Split(f[1], ","), number(2), duration(4))
	case "wait":
		s.now += duration(1)
	case "latency":
		s.kind, s.latency = number(1), duration(2)
	default:
		t.Fatal("unknown command", f)
	}
	return s
}
