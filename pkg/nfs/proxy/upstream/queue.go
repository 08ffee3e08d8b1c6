package upstream

// queue holds requests in order of submission and finds them by XID. It allocates only to grow.
type queue struct {
	first, last *Request
	n           int
	bytes       int64
	buckets     []*Request // length is a power of two
}

func (q *queue) bucket(xid uint32) **Request { return &q.buckets[int(xid)&(len(q.buckets)-1)] }

// find returns the request with the XID, or nil.
func (q *queue) find(xid uint32) *Request {
	if q.n == 0 {
		return nil
	}
	r := *q.bucket(xid)
	for r != nil && r.XID != xid {
		r = r.nextInBucket
	}
	return r
}

// push appends r, whose XID must be new.
func (q *queue) push(r *Request) {
	if q.n == len(q.buckets) {
		q.buckets = make([]*Request, max(16, 2*len(q.buckets)))
		for o := q.first; o != nil; o = o.next {
			b := q.bucket(o.XID)
			o.nextInBucket, *b = *b, o
		}
	}
	b := q.bucket(r.XID)
	r.nextInBucket, *b = *b, r
	r.prev, r.next = q.last, nil
	if q.last == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
	q.n++
	q.bytes += r.size
}

// unlink removes r.
func (q *queue) unlink(r *Request) {
	at := q.bucket(r.XID)
	for *at != r {
		at = &(*at).nextInBucket
	}
	*at = r.nextInBucket
	if r.prev == nil {
		q.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next, r.nextInBucket = nil, nil, nil
	q.n--
	q.bytes -= r.size
}
