package oncrpc

// pending is a requester's table of outstanding requests. It allocates only to grow. The chains run
// through the requests themselves.
type pending struct {
	buckets []*Request // a power of two of them
	n       int
}

func (p *pending) bucket(xid uint32) **Request { return &p.buckets[int(xid)&(len(p.buckets)-1)] }

// find returns the request with the XID, nil if there is none.
func (p *pending) find(xid uint32) *Request {
	if p.n == 0 {
		return nil
	}
	r := *p.bucket(xid)
	for r != nil && r.XID != xid {
		r = r.chain
	}
	return r
}

// add inserts r. No other request of the table may have its XID.
func (p *pending) add(r *Request) {
	if p.n == len(p.buckets) {
		old := p.buckets
		p.buckets = make([]*Request, max(16, 2*len(old)))
		for _, r := range old {
			for r != nil {
				next := r.chain
				p.link(r)
				r = next
			}
		}
	}
	p.link(r)
	p.n++
}

func (p *pending) link(r *Request) {
	b := p.bucket(r.XID)
	r.chain, *b = *b, r
}

// remove removes r, and reports whether it was there.
func (p *pending) remove(r *Request) bool {
	if p.n == 0 {
		return false
	}
	for at := p.bucket(r.XID); *at != nil; at = &(*at).chain {
		if *at == r {
			*at, r.chain = r.chain, nil
			p.n--
			return true
		}
	}
	return false
}

// any returns one of the requests, nil if there are none.
func (p *pending) any() *Request {
	if p.n > 0 {
		for _, r := range p.buckets {
			if r != nil {
				return r
			}
		}
	}
	return nil
}
