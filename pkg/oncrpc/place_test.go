package oncrpc

import (
	"bytes"
	"context"
	"testing"

	"sluice.dev/sluice/pkg/xdr"
)

// TestPlace: over TCP, too, an eligible result becomes an item of the reply, in the requester's
// buffer.
func TestPlace(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{Bindings: bulkBindings})
	for _, n := range []int{0, 1, 3, 4, 5000, 100_001} {
		for _, memory := range [][][]byte{nil, {make([]byte, 200_000)}, {make([]byte, 7), {}, make([]byte, 3000), make([]byte, 100_000)}} {
			r, e := newCall(t, pool, procGet, 100)
			e.Uint32(uint32(n))
			r.Plan.Results = append(r.Plan.Results, Result{Max: 200_000, Memory: memory})
			if err := Do(context.Background(), c, r); err != nil {
				t.Fatal(err)
			}
			d, err := r.Results()
			if err != nil {
				t.Fatal(err)
			}
			data, length, taken := d.Bulk(1<<20, nil)
			if taken != (n > 0) || length != n || !bytes.Equal(bytes.Join(data, nil), fill(n, n)) || d.Uint32() != 0xe0d || d.Err() != nil || d.Left() != 0 {
				t.Errorf("%d bytes: an item: %v, length %d, %v", n, taken, length, d.Err())
			}
			want := Placed
			if n == 0 {
				want = Inline
			}
			if r.Plan.Results[0].State != want {
				t.Errorf("%d bytes: state is %d, want %d", n, r.Plan.Results[0].State, want)
			}
			if n > 0 && memory != nil && &data[0][0] != &memory[0][0] {
				t.Errorf("%d bytes: the result is not where it was wanted", n)
			}
			if join(&r.Reply); r.Reply.Len() != MinReplyLen+8+xdr.Round(n) {
				t.Errorf("%d bytes: the reply has %d", n, r.Reply.Len())
			}
			r.Free()
		}
	}
	// Without SUCCESS, without results that the binding can read, and without a binding nothing
	// changes.
	for _, tt := range []struct{ program, procedure uint32 }{{testProgram, 99}, {testProgram, procNull}, {testProgram + 1, procGet}} {
		r, _, err := NewRequest(pool, tt.program, 1, tt.procedure, Auth{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		r.Plan.Results = append(r.Plan.Results, Result{Max: 10, State: Placed})
		if err := Do(context.Background(), c, r); err != nil {
			t.Fatal(err)
		}
		if len(r.Reply.Items) != 0 || r.Plan.Results[0].State != Absent {
			t.Errorf("program %d procedure %d: %d items, state %d", tt.program, tt.procedure, len(r.Reply.Items), r.Plan.Results[0].State)
		}
		r.Free()
	}
}
