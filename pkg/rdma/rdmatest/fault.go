package rdmatest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

var (
	// ErrLost is the cause of a connection's end by an injected loss.
	ErrLost = errors.New("rdma fabric: connection lost")
	// ErrRemoteAccess is the cause of a connection's end, at either end, when a work request named
	// memory that is not exposed to it.
	ErrRemoteAccess = errors.New("remote access error")
	// ErrOverrun is the cause of a connection's end, at either end, when a Send found no receive
	// that is long enough.
	ErrOverrun = errors.New("no receive for it")
)

// Side is an end of a connection.
type Side uint8

// The sides of a connection.
const (
	EitherSide Side = iota
	Dialer
	Acceptor
)

func (s Side) String() string { return [...]string{"either", "dialer", "acceptor"}[s] }

// AnyOp as the Op of a Fault matches every work request.
const AnyOp rdma.Opcode = 0xff

// Action is a fault's effect.
type Action uint8

const (
	_ Action = iota
	// LoseBeforeSend ends the connection, for both ends and at once, before the work request is
	// executed.
	LoseBeforeSend
	// LoseBeforeDelivery ends it after the work request was sent, and possibly completed, but
	// before any of it arrives.
	LoseBeforeDelivery
	// LoseAfterDelivery ends it after the work request took effect at the peer, which gets its
	// completion. Data of a Read do not come back.
	LoseAfterDelivery
	// RefuseAccess ends the connection as if the work request had named memory that is not exposed.
	RefuseAccess
	// Overrun ends the connection as if no receive had been posted for the Send.
	Overrun
	// Delay makes the work request, and all later ones in its direction, arrive later by
	// Fault.Delay.
	Delay
	// DelaySent reports the completion of a Send or Write, and of later ones, later by Fault.Delay.
	DelaySent
	// Stall stops all arrivals in both directions, from this work request on, without notice to
	// either end.
	Stall
)

// Fault is an action and its trigger. A LocalInvalidate or Redirect can meet LoseBeforeSend and
// Stall only.
type Fault struct {
	Do    Action
	Delay time.Duration // for Delay and DelaySent
	// Conn is the connection's number, from 1 in the order of acceptance; 0 is any of them.
	Conn int
	// From is the side whose work requests count.
	From Side
	// Op is the opcode that counts, or AnyOp. The zero value is rdma.Send.
	Op rdma.Opcode
	// Nth of those work requests that are executed from now on meets the fault, from 1; 0 means 1.
	Nth int
}

// Armed is an injected fault.
type Armed struct {
	f     *Fabric
	fault Fault
	seen  int
	fired bool
}

// Inject arms a fault. It fires once.
func (f *Fabric) Inject(fault Fault) *Armed {
	fault.Nth = max(fault.Nth, 1)
	a := &Armed{f: f, fault: fault}
	f.mu.Lock()
	f.armed = append(f.armed, a)
	f.mu.Unlock()
	f.faults.Add(1)
	return a
}

// Fired reports whether the fault has fired.
func (a *Armed) Fired() bool {
	a.f.mu.Lock()
	defer a.f.mu.Unlock()
	return a.fired
}

// match counts a work request, and returns the fault that it meets, the first injected of several.
func (f *Fabric) match(conn int, s Side, op rdma.Opcode) (hit Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = slices.DeleteFunc(f.armed, func(a *Armed) bool {
		t := &a.fault
		if t.Conn != 0 && t.Conn != conn || t.From != EitherSide && t.From != s || t.Op != AnyOp && t.Op != op {
			return false
		}
		a.seen++
		if a.seen < t.Nth || hit.Do != 0 {
			return false
		}
		a.fired = true
		hit = *t
		f.faults.Add(-1)
		return true
	})
	return hit
}

// Cut ends the connection of a fabric's endpoint at once, for both ends.
func Cut(ep rdma.Endpoint) {
	c := ep.(*endpoint).c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose(fmt.Errorf("%w: it was cut", ErrLost))
}
