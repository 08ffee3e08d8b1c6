package conns

import (
	"log/slog"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
)

// TestStatusBounded: /status lists so many connections that it can be read, and counts the others.
func TestStatusBounded(t *testing.T) {
	c := New(slog.New(slog.DiscardHandler), new(Totals))
	for range 100 {
		c.Open(TCP, &oncrpc.Conn{}, nil)
	}
	for most, want := range map[int]int{0: 0, 10: 10, 100: 100, 1000: 100} {
		list, omitted := c.List(most)
		if len(list) != want || omitted != 100-want {
			t.Errorf("at most %d: %d are listed, %d omitted, want %d", most, len(list), omitted, want)
		}
	}
	for _, exports := range []int{1, 10, 1000} {
		if most := ListLimit(exports); most < 1 || most*exports > 4096 {
			t.Errorf("%d exports list %d connections each", exports, most)
		}
	}
}
