package server

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// recallPatience is how long a call waits for the return of a delegation, without a worker, before
// it gets NFS4ERR_DELAY. A client that answers returns a delegation within milliseconds.
const recallPatience = 500 * time.Millisecond

// delegate completes the result of an OPEN of n by a delegation (RFC 8881 section 10.4), or by the
// reason for none.
func (c *compound) delegate(a *nfs4.OpenArgs, n *vfs.Node, r *nfs4.OpenRes) {
	want := a.Access & nfs4.WantDelegMask
	reclaim := a.Claim == nfs4.ClaimPrevious
	write := a.Access&nfs4.ShareAccessWrite != 0
	switch {
	case a.Claim == nfs4.ClaimDelegateCur || a.Claim == nfs4.ClaimDelegCurFH:
		return
	case reclaim && a.PrevDelegType != nfs4.DelegRead && a.PrevDelegType != nfs4.DelegWrite:
		return
	case reclaim:
		write = a.PrevDelegType == nfs4.DelegWrite
	case want == nfs4.WantNoDeleg || want == nfs4.WantCancel:
		return
	case want == nfs4.WantReadDeleg:
		write = false
	case want == nfs4.WantWriteDeleg:
		write = true
	}
	why := c.delegation(n, write, want != nfs4.WantNoPreference, reclaim, r)
	if why != nfs4.WhyNotWanted && want != nfs4.WantNoPreference {
		r.Delegation.Why = why
	}
}

// delegation grants a delegation of n, or returns the reason for none.
func (c *compound) delegation(n *vfs.Node, write, wanted, reclaim bool, r *nfs4.OpenRes) (why uint32) {
	v, fs := c.s.v4, c.s.fs
	if write {
		// The kernel's leases for writing exclude the server's own descriptors, so only the
		// administrator can vouch for local processes.
		if !v.unshared {
			return nfs4.WhyResource
		}
		// The holder reads without asking.
		if may, err := fs.PermitBlocking(n, &c.stat, &c.cred, vfs.MayRead|vfs.MayWrite); !reclaim && (err != nil || may != vfs.MayRead|vfs.MayWrite) {
			return nfs4.WhyResource
		}
	}
	d, id, why := v.state.Delegate(&state.DelegationRequest{
		Client: c.client, File: n.Key(), Write: write, Handle: n.Handle().Bytes(), Change: n.Change(&c.stat), Wanted: wanted, Reclaim: reclaim,
		Granted: c.slot.Call(),
	}, c.now)
	if d == nil {
		return why
	}
	references := 1
	for _, k := range [...]*vfs.Node{c.cur, c.saved} {
		if k == n {
			references++
		}
	}
	if !v.guard(d, n, references) {
		v.state.Undelegate(d)
		return nfs4.WhyContention
	}
	r.Delegation = nfs4.Delegation{Type: nfs4.DelegRead, StateID: id}
	if write {
		r.Delegation.Type = nfs4.DelegWrite
		r.Delegation.Size = uint64(c.stat.Size)
		if usage, err := fs.Usage(); err == nil {
			r.Delegation.Size += usage.AvailBytes / delegatedShare
		}
	}
	return nfs4.WhyNotWanted
}

// delegatedShare is the part of the free space that the holder of a delegation may fill without
// asking: 1/256.
const delegatedShare = 256

// guard makes sure that the server learns of every use of a delegated file.
func (v *v4Server) guard(d *state.Delegation, n *vfs.Node, references int) bool {
	if v.unshared {
		return v.s.fs.Quiet(n, references)
	}
	lease, err := v.s.fs.Lease(n, references)
	if err != nil {
		return false
	}
	if !v.state.AttachDelegation(d, lease) {
		lease.Close()
		return false
	}
	return true
}

// delegReturn is DELEGRETURN (RFC 8881 section 18.6).
func (c *compound) delegReturn() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.DelegReturnArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := c.resolveState(&a.StateID); st != nfs4.OK {
		return st
	}
	f := c.file()
	return c.s.v4.state.ReturnDelegation(c.client, &a.StateID, &f)
}

// conflict recalls the delegations that a use of n conflicts with, and waits a while for their
// return.
func (c *compound) conflict(n *vfs.Node, use state.Use) nfs4.Status {
	v := c.s.v4
	if !v.state.Delegated() || n == nil {
		return nfs4.OK
	}
	f := state.FileID(n.Key())
	st := v.state.Conflict(&f, c.client, use, c.now)
	if st == nfs4.OK && use == state.UseWrite {
		v.settle() // ends a lease of the holder's own delegation
	}
	if st != nfs4.ErrDelay || !c.patience.begin() {
		return st
	}
	c.waitFor = f
	return wait
}

// conflictOf is conflict for the object of a name, which it returns with a reference: no delegation
// is granted as long as that is held. Without delegations it returns nil.
func (c *compound) conflictOf(dir *vfs.Node, name *vfs.Name) (*vfs.Node, nfs4.Status) {
	if !c.s.v4.state.Delegated() {
		return nil, nfs4.OK
	}
	n, err := c.s.fs.Lookup(dir, name, &c.cred)
	if err != nil { // the operation itself finds the error
		return nil, nfs4.OK
	}
	if st := c.conflict(n, state.UseChange); st != nfs4.OK {
		n.Release()
		return nil, st
	}
	return n, nfs4.OK
}

// patience is the time that a call may still wait for the return of delegations.
type patience struct{ until time.Time }

// begin reports whether the call may wait.
func (p *patience) begin() bool {
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(recallPatience)
	}
	return now.Before(p.until)
}

// parking has the calls that wait for the return of delegations, without a worker.
type parking struct {
	mu     sync.Mutex
	calls  map[state.FileID][]*parkedCall
	closed bool
}

type parkedCall struct {
	task  *task
	timer *time.Timer
}

// park resumes a call when f has no delegations any more, or at a time. Its caller must not touch
// the call afterwards.
func (v *v4Server) park(f state.FileID, t *task, until time.Time) {
	p := &v.parking
	k := &parkedCall{task: t}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		v.s.workers.submit(t)
		return
	}
	p.calls[f] = append(p.calls[f], k)
	k.timer = time.AfterFunc(time.Until(until), func() { v.unpark(f, k) })
	p.mu.Unlock()
	if !v.state.DelegatedFile(&f) { // returned meanwhile
		v.unparkAll(f)
	}
}

func (v *v4Server) unpark(f state.FileID, k *parkedCall) {
	p := &v.parking
	p.mu.Lock()
	list, found := p.calls[f], false
	for i := range list {
		if list[i] == k {
			found = true
			if list = append(list[:i], list[i+1:]...); len(list) == 0 {
				delete(p.calls, f)
			} else {
				p.calls[f] = list
			}
			break
		}
	}
	p.mu.Unlock()
	if found {
		v.s.workers.submit(k.task)
	}
}

func (v *v4Server) unparkAll(f state.FileID) {
	p := &v.parking
	p.mu.Lock()
	list := p.calls[f]
	delete(p.calls, f)
	p.mu.Unlock()
	for _, k := range list {
		k.timer.Stop()
		v.s.workers.submit(k.task)
	}
}

// close ends the waiting for good.
func (v *v4Server) closeParking() {
	p := &v.parking
	p.mu.Lock()
	p.closed = true
	var files []state.FileID
	for f := range p.calls {
		files = append(files, f)
	}
	p.mu.Unlock()
	for _, f := range files {
		v.unparkAll(f)
	}
}

// recall sends CB_RECALL (RFC 8881 section 20.2). A client that does not return the delegation
// loses it after the lease time.
func (v *v4Server) recall(d *state.Delegation) {
	v.callbacks.send(&callback{
		client: d.Client(), op: nfs4.OpCBRecall, size: 64 + nfs4.MaxHandle,
		referring: []nfs4.ReferringCall{d.Granted()},
		encode: func(e *xdr.Encoder) bool {
			id, needed := v.state.RecallOf(d)
			a := nfs4.CBRecallArgs{StateID: id, Object: d.Handle()}
			a.Encode(e)
			return needed
		},
	})
}

// relieve asks the client with the most delegations to return some (CB_RECALL_ANY, RFC 8881 section
// 20.6).
func (v *v4Server) relieve() {
	client, keep := v.state.Pressed()
	if client == nil {
		return
	}
	v.callbacks.send(&callback{
		client: client, op: nfs4.OpCBRecallAny, size: 32,
		encode: func(e *xdr.Encoder) bool {
			a := nfs4.CBRecallAnyArgs{ObjectsToKeep: uint32(keep), Types: nfs4.BitmapOf(nfs4.RecallAnyReadDeleg, nfs4.RecallAnyWriteDeleg)}
			a.Encode(e)
			return true
		},
	})
}

// watchLeases recalls delegations that local processes wait for.
func (v *v4Server) watchLeases() {
	defer close(v.leases)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGIO)
	defer signal.Stop(broken)
	for {
		select {
		case <-v.stop:
			return
		case <-broken:
			v.state.Recall(func(resource any) bool { return resource.(*vfs.Lease).Broken() }, time.Now())
			v.settle()
		}
	}
}
