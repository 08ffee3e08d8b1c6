package group

import (
	"fmt"
	"slices"
	"testing"
)

// The model of one direction: a requester sends its queue in order; a responder answers in any
// order with any grant. Messages take time in both directions. Each credit has a posted receive,
// which cannot be recalled.

// need is a request: the number of its transmissions, and whether chunks can replace them.
type need struct {
	n      int8
	chunks bool
}

const (
	mostNeeds  = 4
	mostGrant  = 3
	mostFlight = mostNeeds
)

// modelState is comparable, so that visited states can be recorded.
type modelState struct {
	queue    [mostNeeds]need
	waiting  int8
	granted  int8 // the requester's view
	inFlight int8

	posted, held int8 // the responder's receives
	// sizes of requests in transit or at the responder, in order; then 0
	sent    [mostFlight]int8
	replies [mostFlight]granting // in transit, in order
	refused int8
}

type granting struct{ n, grant int8 }

func push[T comparable](list *[mostFlight]T, v T) {
	var none T
	list[slices.Index(list[:], none)] = v
}

func remove[T comparable](list *[mostFlight]T, i int) T {
	var none T
	v := list[i]
	copy(list[i:], list[i+1:])
	list[mostFlight-1] = none
	return v
}

// pump sends all requests that can be sent. It returns violations.
func (w *modelState) pump() error {
	for w.waiting > 0 {
		r := w.queue[0]
		n := r.n
		switch way := (Window{int(w.granted), int(w.inFlight)}).Way(int(n), r.chunks); way {
		case Chunks:
			if w.inFlight+1 > w.granted {
				return nil // as soon as one is free
			}
			n = 1
		case Later:
			if w.inFlight == 0 {
				return fmt.Errorf("%+v waits, and nothing is under way", *w)
			}
			return nil
		case Never:
			if r.chunks || n <= w.granted || w.inFlight > 0 {
				return fmt.Errorf("%+v: the first is refused", *w)
			}
			w.refused++
			n = 0
		}
		copy(w.queue[:], w.queue[1:])
		w.queue[mostNeeds-1] = need{}
		w.waiting--
		if n > 0 {
			w.inFlight += n
			w.posted -= n
			w.held += n
			if w.posted < 0 {
				return fmt.Errorf("%+v: a transmission finds no receive", *w)
			}
			push(&w.sent, n)
		}
	}
	return nil
}

// next yields the successor states.
func (w modelState) next(yield func(modelState)) {
	for i := 0; i < mostFlight && w.sent[i] > 0; i++ {
		for grant := int8(1); grant <= mostGrant; grant++ {
			v := w
			n := remove(&v.sent, i)
			v.held -= n
			v.posted = max(v.posted, grant-v.held)
			push(&v.replies, granting{n, grant})
			yield(v)
		}
	}
	if w.replies[0].n > 0 {
		v := w
		r := remove(&v.replies, 0)
		v.inFlight -= r.n
		v.granted = r.grant
		yield(v)
	}
}

// TestNoDeadlock visits every state of the model, for every queue of requests of 1 to 3
// transmissions, with or without chunks, and every first grant. Each transmission finds a receive,
// nobody waits while nothing is in flight, only requests beyond the grant are refused, and every
// run ends.
func TestNoDeadlock(t *testing.T) {
	var kinds []need
	for n := int8(1); n <= 3; n++ {
		kinds = append(kinds, need{n, true})
		if n > 1 {
			kinds = append(kinds, need{n, false})
		}
	}
	states := 0
	var each func(w modelState)
	each = func(w modelState) {
		if w.waiting == mostNeeds {
			for grant := int8(1); grant <= mostGrant; grant++ {
				v := w
				v.granted, v.posted = grant, grant
				states += visit(t, v)
			}
			return
		}
		for _, k := range kinds {
			v := w
			v.queue[v.waiting] = k
			v.waiting++
			each(v)
		}
	}
	each(modelState{})
	t.Logf("%d states", states)
}

func visit(t *testing.T, first modelState) int {
	seen, todo := map[modelState]bool{}, []modelState{}
	add := func(w modelState) {
		if err := w.pump(); err != nil {
			t.Fatal(err)
		}
		if !seen[w] {
			seen[w] = true
			todo = append(todo, w)
		}
	}
	add(first)
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		end := true
		w.next(func(v modelState) { end = false; add(v) })
		if end && (w.waiting > 0 || w.inFlight > 0) {
			t.Fatalf("%+v: nothing happens any more", w)
		}
	}
	return len(seen)
}

func TestWay(t *testing.T) {
	for _, c := range []struct {
		w      Window
		n      int
		chunks bool
		want   Way
	}{
		{Window{1, 0}, 1, false, Now}, {Window{3, 0}, 3, true, Now}, {Window{3, 1}, 2, false, Now},
		{Window{3, 2}, 2, true, Chunks}, {Window{3, 3}, 2, true, Chunks}, {Window{1, 0}, 2, true, Chunks},
		{Window{3, 3}, 1, true, Later}, {Window{3, 2}, 2, false, Later}, {Window{1, 1}, 2, false, Later}, {Window{1, 3}, 2, false, Later},
		{Window{1, 0}, 2, false, Never},
	} {
		if got := c.w.Way(c.n, c.chunks); got != c.want {
			t.Errorf("%+v, %d transmissions, chunks %v: way %d, must be %d", c.w, c.n, c.chunks, got, c.want)
		}
	}
}
