package iwarp

// ring is a first-in, first-out queue that grows as needed, and allocates nothing once it is large
// enough.
type ring[T any] struct {
	buf  []T // length is a power of two
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

// at returns the i-th entry from the front.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		grown := make([]T, max(16, 2*r.n))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.buf, r.head = grown, 0
	}
	r.n++
	*r.at(r.n - 1) = v
}

// pop removes the front entry. The ring must not be empty.
func (r *ring[T]) pop() T {
	var zero T
	p := r.at(0)
	v := *p
	*p = zero // keep no memory alive
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}
