package client

import "sluice.dev/sluice/pkg/oncrpc"

// queue has the calls that wait, oldest first.
type queue struct {
	list []*oncrpc.Request
	head int
}

func (q *queue) len() int { return len(q.list) - q.head }

func (q *queue) push(r *oncrpc.Request) {
	if q.head > 0 && len(q.list) == cap(q.list) {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, r)
}

// pushFront is for a call that was sent before.
func (q *queue) pushFront(r *oncrpc.Request) {
	if q.head == 0 {
		q.list = append([]*oncrpc.Request{nil}, q.list...)
		q.head = 1
	}
	q.head--
	q.list[q.head] = r
}

func (q *queue) pop() *oncrpc.Request {
	r := q.list[q.head]
	q.list[q.head] = nil
	if q.head++; q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	return r
}

func (q *queue) remove(r *oncrpc.Request) bool {
	for i := q.head; i < len(q.list); i++ {
		if q.list[i] == r {
			q.list = append(q.list[:i], q.list[i+1:]...)
			return true
		}
	}
	return false
}
