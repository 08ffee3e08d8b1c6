package oncrpc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"sluice.dev/sluice/pkg/xdr"
)

// ErrXIDInUse means that a reply with the XID of this request may still come for an earlier one.
// The request was not sent.
var ErrXIDInUse = errors.New("oncrpc: a reply with this XID is outstanding already")

// maxOwed bounds the outstanding replies to cancelled requests on a connection.
const maxOwed = 4096

var errOwed = fmt.Errorf("oncrpc: the peer owes replies to more than %d requests that were cancelled", maxOwed)

// requester is the part of a link that makes calls.
type requester struct {
	Waiters
	link *link
	// Owned by the receive loop.
	found []Found
	dec   xdr.Decoder

	rmu     sync.Mutex // guards the fields below, and the requests' fields for the link
	pending pending
	owed    map[uint32]struct{} // XIDs of cancelled requests whose replies have not come
	gone    error               // reason for refusing requests
	xid     uint32
}

// linkState is a link's state of a request.
type linkState struct {
	chain     *Request // in the table
	link      *link
	mark      [4]byte
	writing   bool // from Submit until its memory is free
	completed bool // the outcome is known
}

// tcpRequest is a Request being sent.
type tcpRequest Request

func (q *requester) init(l *link) {
	q.link = l
	// the server's duplicate request cache may remember an earlier connection's
	q.xid = rand.Uint32()
}

// NextXID implements [Requester].
func (l *link) NextXID() uint32 {
	l.rmu.Lock()
	defer l.rmu.Unlock()
	l.xid++
	for l.takenLocked(l.xid) {
		l.xid++
	}
	return l.xid
}

// takenLocked reports whether a reply with the XID may still come. The requester is locked.
func (q *requester) takenLocked(xid uint32) bool {
	_, owed := q.owed[xid]
	return owed || q.pending.find(xid) != nil
}

// Submit implements [Requester].
func (l *link) Submit(r *Request) {
	r.Err = nil
	l.rmu.Lock()
	err := l.gone
	if err == nil && l.takenLocked(r.XID) {
		err = fmt.Errorf("%w: %#x", ErrXIDInUse, r.XID)
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

// Cancel implements [Canceler]. If the call has been sent, the peer still owes its reply, which
// keeps the XID until it comes.
func (l *link) Cancel(r *Request, cause error) {
	l.rmu.Lock()
	if !l.pending.remove(r) {
		l.rmu.Unlock()
		return
	}
	r.Err = cause
	r.completed = true
	writing := r.writing
	withdrawn := writing && l.out.withdraw((*tcpRequest)(r))
	if !withdrawn {
		if l.owed == nil {
			l.owed = map[uint32]struct{}{}
		}
		l.owed[r.XID] = struct{}{}
	}
	tooMany := len(l.owed) > maxOwed
	l.rmu.Unlock()
	if tooMany {
		l.fail(errOwed)
	}
	if !writing || withdrawn {
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
		r.completed = true
	}
	over := r.completed
	l.rmu.Unlock()
	if over {
		r.Done(r)
	}
}

// expects reports whether a request waits for the reply with the XID. A reply without a request is
// skipped.
func (q *requester) expects(xid uint32) bool {
	q.rmu.Lock()
	defer q.rmu.Unlock()
	if q.pending.find(xid) != nil {
		return true
	}
	q.orphanLocked(xid)
	return false
}

// orphanLocked counts a reply that no request waits for. The requester is locked.
func (q *requester) orphanLocked(xid uint32) {
	delete(q.owed, xid)
	q.link.stats.orphans.Add(1)
}

func (q *requester) outstanding() int {
	q.rmu.Lock()
	defer q.rmu.Unlock()
	return q.pending.n
}

// reply completes the request that m answers, and takes m's memory over. Without a request m stays
// as it is.
func (q *requester) reply(xid uint32, m *Message) {
	q.rmu.Lock()
	r := q.pending.find(xid)
	if r == nil {
		q.orphanLocked(xid)
		q.rmu.Unlock()
		return
	}
	q.pending.remove(r)
	q.rmu.Unlock()
	// From here on r is not cancelled, and nobody else completes it, before completed is set.
	r.Reply.Release()
	r.Reply, *m = *m, r.Reply
	q.place(r)
	q.rmu.Lock()
	r.completed = true
	writing := r.writing
	q.rmu.Unlock()
	if !writing { // else the peer answered before our write has returned
		r.Done(r)
	}
}

// place turns the reply's eligible results into items. A reply that the binding cannot read stays
// as it is: its reader will report the error.
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

// end fails all requests, later ones too.
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
		r.completed = true
		writing := r.writing
		q.rmu.Unlock()
		if !writing {
			r.Done(r)
		}
		q.rmu.Lock()
	}
	q.rmu.Unlock()
}
