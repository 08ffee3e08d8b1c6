package server

import (
	"errors"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// lockRange converts offset and length, where the largest length means to the end of any file.
func lockRange(offset, length uint64, write bool) (state.Range, nfs4.Status) {
	switch {
	case length == 0:
		return state.Range{}, nfs4.ErrInval
	case length == math.MaxUint64:
		return state.Range{First: offset, Last: math.MaxUint64, Write: write}, nfs4.OK
	case length > math.MaxUint64-offset:
		return state.Range{}, nfs4.ErrInval
	}
	return state.Range{First: offset, Last: offset + length - 1, Write: write}, nfs4.OK
}

// kernelRange converts a range for the file system; ok is false beyond the offsets of files, where
// the file system has no locks.
func kernelRange(r state.Range) (off, length uint64, ok bool) {
	if r.First > math.MaxInt64 {
		return 0, 0, false
	}
	if r.Last >= math.MaxInt64 {
		return r.First, 0, true
	}
	return r.First, r.Last - r.First + 1, true
}

func kernelType(write bool) int16 {
	if write {
		return unix.F_WRLCK
	}
	return unix.F_RDLCK
}

// denied writes the conflicting lock, and returns NFS4ERR_DENIED.
func (c *compound) denied(k *state.Conflict) nfs4.Status {
	r := nfs4.LockDenied{Offset: k.First, Length: k.Last - k.First + 1, Type: nfs4.LockRead, Owner: nfs4.Owner{ClientID: k.ClientID, Owner: k.Owner}}
	if k.Last == math.MaxUint64 {
		r.Length = math.MaxUint64
	}
	if k.Write {
		r.Type = nfs4.LockWrite
	}
	if !c.need(8 + 8 + 4 + 8 + 4 + len(k.Owner) + 3) {
		return c.tooBig()
	}
	r.Encode(c.e)
	return nfs4.ErrDenied
}

// lock is LOCK (RFC 8881 section 18.10). The lock is taken in the state, and then in the file
// system, where other processes have theirs.
func (c *compound) lock() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.LockArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := regular(c.cur); st != nfs4.OK {
		return st
	}
	r, st := lockRange(a.Offset, a.Length, a.Type.Exclusive())
	if st != nfs4.OK {
		return st
	}
	for _, id := range [...]*nfs4.StateID{&a.OpenStateID, &a.LockStateID} {
		if st := c.resolveState(id); st != nfs4.OK {
			return st
		}
	}
	l, conflict, st := c.s.v4.state.Lock(&state.LockRequest{
		Client: c.client, File: c.file(), NewOwner: a.New, OpenID: a.OpenStateID, Owner: a.Owner.Owner, ID: a.LockStateID,
		Range: r, Reclaim: a.Reclaim,
	}, c.now)
	waits := a.Type == nfs4.LockReadW || a.Type == nfs4.LockWriteW
	if st == nfs4.ErrDenied {
		if waits {
			f := c.file()
			c.s.v4.state.WaitLock(c.client, conflict.For, &f, c.cur.Handle().Bytes(), r)
		}
		return c.denied(conflict)
	}
	if st != nfs4.OK {
		return st
	}
	conflict, err := c.lockFile(l.Lock, r)
	if conflict != nil && waits && !a.Reclaim {
		c.s.v4.notifyLater(state.LockNotice{Client: c.client, Owner: l.Lock.Owner().Owner, Handle: slices.Clone(c.cur.Handle().Bytes())})
	}
	if conflict != nil || err != nil {
		c.s.v4.state.UndoLock(&l)
	}
	switch {
	case conflict != nil && a.Reclaim:
		return nfs4.ErrReclaimConflict
	case conflict != nil:
		return c.denied(conflict)
	case err != nil:
		return status4(err)
	}
	c.setState(l.ID)
	res := nfs4.LockRes{StateID: l.ID}
	res.Encode(c.e)
	return nfs4.OK
}

// lockFile takes a lock in the file system. A conflict is a lock of another process.
func (c *compound) lockFile(l *state.Lock, r state.Range) (*state.Conflict, error) {
	off, length, ok := kernelRange(r)
	if !ok {
		return nil, nil
	}
	l.IO.Lock()
	defer l.IO.Unlock()
	f, _ := c.s.v4.state.Resource(l).(*vfs.File)
	if f == nil {
		var err error
		if f, err = c.openForLocks(); err != nil {
			return nil, err
		}
		if !c.s.v4.state.Attach(l, f) {
			f.Close()
			return nil, nfs4.ErrExpired
		}
	}
	err := f.Lock(kernelType(r.Write), off, length)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return foreign(f, r), nil
	case errors.Is(err, unix.EBADF):
		return nil, nfs4.ErrOpenMode // a lock for writing, and the file cannot be opened for that
	}
	return nil, err
}

// openForLocks opens the current file, for writing if that is possible: a lock-owner may lock for
// reading first and for writing later.
func (c *compound) openForLocks() (*vfs.File, error) {
	f, err := c.s.fs.OpenFile(c.cur, vfs.MayRead|vfs.MayWrite)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		f, err = c.s.fs.OpenFile(c.cur, vfs.MayRead)
	}
	return f, err
}

// foreign describes the lock of another process that conflicts with r.
func foreign(f *vfs.File, r state.Range) *state.Conflict {
	k := &state.Conflict{Range: r, Owner: []byte("local process")}
	off, length, _ := kernelRange(r)
	held, typ, off, length, err := f.TestLock(kernelType(r.Write), off, length)
	if err != nil || !held { // gone meanwhile
		return k
	}
	k.First, k.Last, k.Write = off, math.MaxUint64, typ == unix.F_WRLCK
	if length > 0 {
		k.Last = off + length - 1
	}
	return k
}

// lockT is LOCKT (RFC 8881 section 18.11).
func (c *compound) lockT() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.LockTArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if st := regular(c.cur); st != nfs4.OK {
		return st
	}
	r, st := lockRange(a.Offset, a.Length, a.Type.Exclusive())
	if st != nfs4.OK {
		return st
	}
	f := c.file()
	conflict, own, st := c.s.v4.state.TestLock(c.client, a.Owner.Owner, &f, r, c.now)
	if st == nfs4.ErrDenied {
		return c.denied(conflict)
	}
	if st != nfs4.OK {
		return st
	}
	conflict, err := c.testFile(own, r)
	if conflict != nil {
		return c.denied(conflict)
	}
	return status4(err)
}

// testFile looks for a conflicting lock of another process. The owner's own locks are on the file
// of own.
func (c *compound) testFile(own *state.Lock, r state.Range) (*state.Conflict, error) {
	off, length, ok := kernelRange(r)
	if !ok {
		return nil, nil
	}
	var f *vfs.File
	if own != nil {
		own.IO.Lock()
		defer own.IO.Unlock()
		f, _ = c.s.v4.state.Resource(own).(*vfs.File)
	}
	if f == nil {
		var err error
		if f, err = c.s.fs.OpenFile(c.cur, vfs.MayRead); err != nil {
			return nil, err
		}
		defer f.Close()
	}
	held, _, _, _, err := f.TestLock(kernelType(r.Write), off, length)
	if err != nil || !held {
		return nil, err
	}
	return foreign(f, r), nil
}

// lockU is LOCKU (RFC 8881 section 18.12).
func (c *compound) lockU() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.LockUArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	r, st := lockRange(a.Offset, a.Length, false)
	if st != nfs4.OK {
		return st
	}
	if st := c.resolveState(&a.StateID); st != nfs4.OK {
		return st
	}
	file := c.file()
	l, st := c.s.v4.state.LockOf(c.client, &a.StateID, &file)
	if st != nfs4.OK {
		return st
	}
	if err := c.unlockFile(l, r); err != nil {
		return status4(err)
	}
	id, st := c.s.v4.state.Unlock(l, r)
	if st != nfs4.OK {
		return st
	}
	c.setState(id)
	res := nfs4.LockURes{StateID: id}
	res.Encode(c.e)
	return nfs4.OK
}

func (c *compound) unlockFile(l *state.Lock, r state.Range) error {
	off, length, ok := kernelRange(r)
	if !ok {
		return nil
	}
	l.IO.Lock()
	defer l.IO.Unlock()
	if f, _ := c.s.v4.state.Resource(l).(*vfs.File); f != nil {
		return f.Unlock(off, length)
	}
	return nil
}
