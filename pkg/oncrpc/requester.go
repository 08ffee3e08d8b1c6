package oncrpc

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"sluice.dev/sluice/pkg/xdr"
)

// requester is the part of a link that makes calls.
type requester struct {
	Waiters
	link *link
	// The receive loop's own.
	found []Found
	dec   xdr.Decoder

	rmu     sync.Mutex // guards what follows, and the requests' fields for the link
	pending pending
	gone    error // why no more requests are accepted
	xid     uint32
}

// linkState is what a link keeps with a request.
type linkState struct {
	chain   *Request // in the table
	link    *link
	mark    [4]byte
	writing bool // from Submit until its memory is free
	settled bool // the outcome is there
}

// tcpRequest is a Request on its way out.
type tcpRequest Request

func (q *requester) init(l *link) {
	q.link = l
	q.xid = rand.Uint32() // the server's duplicate request cache may remember an earlier connection's
}

// NextXID implements [Requester].
func (l *link) NextXID() uint32 {
	l.rmu.Lock()
	defer l.rmu.Unlock()
	l.xid++
	for l.pending.find(l.xid) != nil {
		l.xid++
	}
	return l.xid
}

// Submit implements [Requester].
func (l *link) Submit(r *Request) {
	r.Err = nil
	l.rmu.Lock()
	err := l.gone
	if err == nil && l.pending.find(r.XID) != nil {
		err = fmt.Errorf("oncrpc: a request with XID %#x is outstanding already", r.XID)
	}
	if err != nil {
		l.rmu.Unlock()
		r.Err = err
		r.Done(r)
		return
	}
	r.linkState = linkState{link: l, writing: true}
	l.pending.add(r)
	n := r.Call.Len()
	l.rmu.Unlock()
	l.out.send((*tcpRequest)(r), n)
}

// Cancel implements [Canceler].
func (l *link) Cancel(r *Request, cause error) {
	l.rmu.Lock()
	if !l.pending.remove(r) {
		l.rmu.Unlock()
		return
	}
	r.Err = cause
	r.settled = true
	writing := r.writing
	l.rmu.Unlock()
	if !writing || l.out.withdraw((*tcpRequest)(r)) {
		r.Done(r)
	}
}

func (r *tcpRequest) outgoing() (*Message, *[4]byte) { return &r.Call, &r.mark }

// sent implements outgoing: the call's memory is the user's again.
func (t *tcpRequest) sent(err error) {
	r := (*Request)(t)
	l := r.link
	l.rmu.Lock()
	r.writing = false
	if err != nil && l.pending.remove(r) {
		r.Err = l.peerError(err)
		r.settled = true
	}
	over := r.settled
	l.rmu.Unlock()
	if over {
		r.Done(r)
	}
}

// waits reports whether a request with the XID waits for its reply.
func (q *requester) waits(xid uint32) bool {
	q.rmu.Lock()
	defer q.rmu.Unlock()
	return q.pending.find(xid) != nil
}

func (q *requester) outstanding() int {
	q.rmu.Lock()
	defer q.rmu.Unlock()
	return q.pending.n
}

// reply completes the request that m answers, and takes m's memory over; if there is none, m stays as it is.
func (q *requester) reply(xid uint32, m *Message) {
	q.rmu.Lock()
	r := q.pending.find(xid)
	if r == nil {
		q.rmu.Unlock()
		q.link.stats.orphans.Add(1)
		return
	}
	q.pending.remove(r)
	q.rmu.Unlock()
	// From here on r cannot be cancelled, and nobody completes it before it is settled.
	r.Reply.Release()
	r.Reply, *m = *m, r.Reply
	q.place(r)
	q.rmu.Lock()
	r.settled = true
	writing := r.writing
	q.rmu.Unlock()
	if !writing { // else the peer answered before our write has returned
		r.Done(r)
	}
}

// place makes items of the reply's eligible results. A reply that the binding cannot read is left as it is: who reads it will say why.
func (q *requester) place(r *Request) {
	plan := r.Plan.Results
	for i := range plan {
		plan[i].State = Absent
	}
	if len(plan) == 0 || q.link.cfg.Bindings == nil {
		return
	}
	binding := q.link.cfg.Bindings(r.Program, r.Version)
	if binding == nil {
		return
	}
	d := &q.dec
	d.Reset(r.Reply.Stream, nil)
	if r.header.Decode(d) != nil || !r.header.Status.OK() {
		return
	}
	found, err := binding.Results(q.found[:0], &r.Plan, nil, r.Procedure, d)
	q.found = found[:0]
	if err != nil || len(found) != len(plan) || r.Reply.Cut(found) != nil {
		return
	}
	item := 0
	for i := range found {
		plan[i].State = found[i].State
		if found[i].State == Absent || found[i].Length == 0 {
			continue
		}
		plan[i].State = Placed
		if plan[i].Memory != nil {
			r.Reply.moveItem(item, plan[i].Memory)
		}
		item++
	}
}

// end fails all requests, also those to come.
func (q *requester) end(err error) {
	q.rmu.Lock()
	q.gone = err
	for {
		r := q.pending.any()
		if r == nil {
			break
		}
		q.pending.remove(r)
		r.Err = err
		r.settled = true
		writing := r.writing
		q.rmu.Unlock()
		if !writing {
			r.Done(r)
		}
		q.rmu.Lock()
	}
	q.rmu.Unlock()
}
