package iwarp

import (
	"math/rand/v2"
	"testing"

	"sluice.dev/sluice/pkg/rdma"
)

// shaped is a receive whose shape is a number.
func shaped(id uint64, shape int) *rdma.Receive {
	r := &rdma.Receive{ID: id}
	for i := range 1 + shape%2 {
		r.Segments = append(r.Segments, make([]byte, 1+shape+i))
	}
	return r
}

// TestReceiveOrder: shapes come in the order of posting, and of one shape the last receive that was
// posted before another shape.
func TestReceiveOrder(t *testing.T) {
	q := receiveQueue{reuse: true}
	var runs [][]*rdma.Receive // the model
	random := rand.New(rand.NewPCG(3, 4))
	for id := range uint64(100_000) {
		if random.IntN(2) == 0 {
			shape := 0
			if random.IntN(8) == 0 {
				shape = random.IntN(4)
			}
			r := shaped(id, shape)
			q.push(r)
			if n := len(runs); n > 0 && sameShape(runs[n-1][0], r) {
				runs[n-1] = append(runs[n-1], r)
			} else {
				runs = append(runs, []*rdma.Receive{r})
			}
			continue
		}
		got, ok := q.pop()
		if ok != (len(runs) > 0) {
			t.Fatalf("a receive: %v, want %v", ok, !ok)
		}
		if !ok {
			continue
		}
		first := runs[0]
		want := first[len(first)-1]
		if got.ID != want.ID || !sameShape(&got, want) {
			t.Fatalf("receive %d, want %d", got.ID, want.ID)
		}
		if runs[0] = first[:len(first)-1]; len(runs[0]) == 0 {
			runs = runs[1:]
		}
	}
}

// TestReceivesAreReused: one message at a time uses one receive of many.
func TestReceivesAreReused(t *testing.T) {
	q := receiveQueue{reuse: true}
	for id := range uint64(100) {
		q.push(shaped(id, 0))
	}
	for range 1000 {
		r, ok := q.pop()
		if !ok || r.ID != 99 {
			t.Fatalf("receive %d (%v), want 99", r.ID, ok)
		}
		q.push(&r)
	}
	if n := testing.AllocsPerRun(100, func() { r, _ := q.pop(); q.push(&r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
