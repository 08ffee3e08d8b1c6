package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// maxSlots is the number of slots to ask for.
const maxSlots = 128

// delayed is the pause after a server answers NFS4ERR_DELAY to SEQUENCE.
const delayed = 100 * time.Millisecond

// session is a Requester for COMPOUNDs that begin with SEQUENCE. It gives each a slot, or lets it
// wait for one. When the server has lost the session, it makes another, reclaims the open files,
// and sends the unanswered calls again.
//
// The first call makes the first session. There is no back channel, so the server grants no
// delegations.
type session struct {
	caller
	oncrpc.Waiters
	owner    nfs4.ExchangeIDArgs
	finished func(*oncrpc.Request) // made once
	ctx      context.Context
	stop     context.CancelFunc
	owners   atomic.Uint64 // open-owners
	recovery sync.WaitGroup

	mu       sync.Mutex
	phase    phase
	clientID uint64
	create   uint32 // sequence of CREATE_SESSION
	id       nfs4.SessionID
	fore     nfs4.ChannelAttrs
	lease    time.Duration
	slots    []slot
	target   int // slots that may be used
	inFlight int
	paused   bool // after NFS4ERR_DELAY
	losses   int  // sessions lost one after another
	queue    queue
	files    map[*v4File]struct{}
	idle     bool // no call since the last tick of renewal
	renewal  *time.Timer
}

type phase int

const (
	lost phase = iota // or not made yet
	recovering
	ready
	closed
)

// maxLosses bounds the sessions that are lost before a call succeeds: the call may be the cause.
const maxLosses = 8

func newSession(c caller) *session {
	s := &session{caller: c, files: map[*v4File]struct{}{}}
	s.finished = s.end
	s.ctx, s.stop = context.WithCancel(context.Background())
	var id [24]byte
	_, _ = rand.Read(id[:])
	copy(s.owner.Verifier[:], id[:])
	host, _ := os.Hostname() // for administrators
	s.owner.Owner = fmt.Appendf(nil, "sluice client %s %d %x", host[:min(len(host), oncrpc.MaxMachineName)], os.Getpid(), id[8:])
	s.owner.Flags = nfs4.ExchangeUseNonPNFS
	return s
}

// NextXID implements [oncrpc.Requester]. A call gets its XID when it is sent.
func (s *session) NextXID() uint32 { return 0 }

// Close implements [oncrpc.Requester]. The connection is its owner's.
func (s *session) Close() error { return nil }

// Submit implements [oncrpc.Requester].
func (s *session) Submit(r *oncrpc.Request) {
	s.mu.Lock()
	if s.phase == closed {
		s.mu.Unlock()
		r.Err = errClosed
		r.Done(r)
		return
	}
	s.queue.push(r)
	s.mu.Unlock()
	s.pump()
}

// Cancel implements [oncrpc.Canceler].
func (s *session) Cancel(r *oncrpc.Request, cause error) {
	s.mu.Lock()
	waiting := s.queue.remove(r)
	s.mu.Unlock()
	if waiting {
		r.Err = cause
		r.Done(r)
	} else if rq, ok := s.rq.(oncrpc.Canceler); ok {
		rq.Cancel(r, cause)
	}
}

// pump sends waiting calls while there are slots.
func (s *session) pump() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.queue.len() > 0 && !s.paused {
		switch {
		case s.phase == lost && s.inFlight == 0:
			s.phase = recovering
			s.recovery.Go(s.recover)
			return
		case s.phase != ready:
			return
		}
		n := s.freeSlotLocked()
		if n < 0 {
			return
		}
		r := s.queue.pop()
		sl := &s.slots[n]
		sl.r, sl.done = r, r.Done
		r.Done = s.finished
		s.inFlight++
		s.idle = false
		s.stampLocked(r, n)
		s.mu.Unlock()
		oncrpc.Submit(s.rq, r)
		s.mu.Lock()
	}
}

// end takes a call back from the connection.
func (s *session) end(r *oncrpc.Request) {
	var res nfs4.SequenceRes
	status, err := sequenceStatus(r, &res)
	s.mu.Lock()
	n := slotOf(r)
	sl := &s.slots[n]
	done := sl.done
	sl.r, sl.done = nil, nil
	s.inFlight--
	again := false
	switch {
	case err != nil && r.Err == nil: // an RPC error: the server did not see SEQUENCE
		sl.sequence--
	case err != nil:
		s.probeLocked(n)
	case status == nfs4.OK:
		s.losses = 0
		s.target = min(len(s.slots), max(1, int(res.TargetHighestSlot)+1))
	case status == nfs4.ErrDelay:
		sl.sequence--
		again = s.phase != closed
		s.pauseLocked()
	case status == nfs4.ErrRetryUncachedRep:
		again = s.phase != closed
	case s.losses < maxLosses && isLostSession(status):
		again = s.phase != closed
		s.loseLocked()
	}
	if again {
		r.Done = done
		reset(r)
		s.queue.pushFront(r)
	}
	s.mu.Unlock()
	if !again {
		r.Done = done
		done(r)
	}
	s.pump()
}

// sequenceStatus reads the status of SEQUENCE, and its result. The status of a repeated call whose
// reply the server did not keep may be that of the next operation.
func sequenceStatus(r *oncrpc.Request, res *nfs4.SequenceRes) (nfs4.Status, error) {
	d, err := r.Results()
	if err != nil {
		return 0, err
	}
	var list results
	if err := list.begin(d); err != nil {
		return 0, err
	}
	if list.status == nfs4.ErrRetryUncachedRep {
		return list.status, nil
	}
	return sequenceResult(&list, d, res)
}

func sequenceResult(list *results, d *xdr.Decoder, res *nfs4.SequenceRes) (nfs4.Status, error) {
	if list.left == 0 {
		return list.status, nil
	}
	op, status := nfs4.Op(d.Uint32()), nfs4.Status(d.Uint32())
	if op == nfs4.OpSequence && status == nfs4.OK {
		res.Decode(d)
	}
	return status, d.Err()
}

// isLostSession reports whether a status of SEQUENCE calls for another session.
func isLostSession(status nfs4.Status) bool {
	switch status {
	case nfs4.ErrBadSession, nfs4.ErrDeadsession, nfs4.ErrConnNotBoundToSession, nfs4.ErrSeqMisordered,
		nfs4.ErrSeqFalseRetry, nfs4.ErrBadSlot, nfs4.ErrBadHighSlot, nfs4.ErrStaleClientID:
		return true
	}
	return false
}

func (s *session) loseLocked() {
	if s.phase == ready {
		s.phase = lost
		s.losses++
	}
}

// pauseLocked stops the calls for a while.
func (s *session) pauseLocked() {
	if s.paused {
		return
	}
	s.paused = true
	time.AfterFunc(delayed, func() {
		s.mu.Lock()
		s.paused = false
		s.mu.Unlock()
		s.pump()
	})
}

// fail ends all waiting calls.
func (s *session) fail(err error) {
	s.mu.Lock()
	var waiting []*oncrpc.Request
	for s.queue.len() > 0 {
		waiting = append(waiting, s.queue.pop())
	}
	s.mu.Unlock()
	for _, r := range waiting {
		r.Err = err
		r.Done(r)
	}
}

// renewLocked keeps the lease while files are open.
func (s *session) renewLocked() {
	if s.renewal == nil && s.lease > 0 && len(s.files) > 0 && s.phase != closed {
		s.idle = true
		s.renewal = time.AfterFunc(s.lease/3, s.renew)
	}
}

func (s *session) renew() {
	s.mu.Lock()
	s.renewal = nil
	silent := s.idle && s.phase == ready
	s.renewLocked()
	s.mu.Unlock()
	if !silent {
		return
	}
	r, err := s.newRequest(nfs4.ProcCompound, compound{sequence(false)}, fixedOps)
	if err != nil {
		return // the next tick tries again
	}
	r.Done = (*oncrpc.Request).Free
	oncrpc.Submit(s, r)
}

// close ends the session and the client ID. All calls must have ended.
func (s *session) close(ctx context.Context) error {
	s.mu.Lock()
	made := s.phase == ready
	s.phase = closed
	if s.renewal != nil {
		s.renewal.Stop()
	}
	s.mu.Unlock()
	s.stop()
	s.recovery.Wait()
	s.fail(errClosed)
	if !made {
		return nil
	}
	err := s.destroySession(ctx)
	if err == nil {
		err = s.exchange(ctx, s.rq, compound{{nfs4.OpDestroyClientID, &nfs4.DestroyClientIDArgs{ClientID: s.clientID}}}, 0,
			func(r *results) error { return r.next(nfs4.OpDestroyClientID) })
	}
	if errors.Is(err, nfs4.ErrBadSession) || errors.Is(err, nfs4.ErrStaleClientID) {
		return nil
	}
	return err
}

// dataSizes returns the most data of a READ and of a WRITE in a message of the session.
func (s *session) dataSizes() (read, write uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := func(n uint32) uint32 { return max(n, messageRest+4096) - messageRest }
	return rest(s.fore.MaxResponseSize), rest(s.fore.MaxRequestSize)
}

// destroySession ends the session while no call is in flight. On a connection that the session does
// not know yet, SEQUENCE goes before.
func (s *session) destroySession(ctx context.Context) error {
	op := operation{nfs4.OpDestroySession, &nfs4.DestroySessionArgs{Session: s.id}}
	read := func(r *results) error { return r.next(op.op) }
	err := s.exchange(ctx, s.rq, compound{op}, 0, read)
	if errors.Is(err, nfs4.ErrConnNotBoundToSession) {
		err = s.direct(ctx, read, op)
	}
	return err
}
