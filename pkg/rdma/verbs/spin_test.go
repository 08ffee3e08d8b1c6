package verbs

import "testing"

func TestNextSpin(t *testing.T) {
	for _, c := range []struct{ now, most, spun, found, want int }{
		{now: 0, most: 0, want: 0},
		{now: 0, most: 0, spun: 1, found: 1, want: 0},
		{now: 0, most: 256, found: 1, want: leastSpin},
		{now: 64, most: 256, spun: 63, found: 1, want: 128},
		{now: 256, most: 256, spun: 1, found: 9, want: 256},
		{now: 64, most: 256, found: 9, want: 64}, // not needed
		{now: 64, most: 256, spun: 64, want: 32},
		{now: leastSpin, most: 256, spun: leastSpin, want: leastSpin},
		{now: leastSpin, most: 4, spun: 4, want: 4},
	} {
		if got := nextSpin(c.now, c.most, c.spun, c.found); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
