package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/xdr"
)

// v4File is an open file, with an open-owner of its own. So two opens of one file do not share a
// stateid.
type v4File struct {
	c      *v4
	handle nfs3.Handle
	access uint32
	owner  []byte

	reopening sync.Mutex

	mu      sync.Mutex
	stateid nfs4.StateID
}

// openArgs are the arguments of OPEN by a new open-owner.
func (s *session) openArgs(access uint32) *nfs4.OpenArgs {
	return &nfs4.OpenArgs{
		Access: access | nfs4.WantNoDeleg,
		Owner:  nfs4.Owner{Owner: binary.BigEndian.AppendUint64(nil, s.owners.Add(1))},
	}
}

// open is OPEN by the file's handle.
func (f *v4File) open(claim nfs4.Claim) operation {
	return operation{nfs4.OpOpen, &nfs4.OpenArgs{
		Access: f.access | nfs4.WantNoDeleg, Owner: nfs4.Owner{Owner: f.owner}, Claim: claim,
	}}
}

// reclaimed reads the results of PUTFH and OPEN.
func (f *v4File) reclaimed(r *results) error {
	if err := r.skip(nfs4.OpPutFH); err != nil {
		return err
	}
	var res nfs4.OpenRes
	if err := r.get(nfs4.OpOpen, &res); err != nil {
		return err
	}
	f.mu.Lock()
	f.stateid = res.StateID
	f.mu.Unlock()
	return nil
}

func (c *v4) Open(ctx context.Context, file nfs3.Handle, access uint32) (File, error) {
	f := &v4File{c: c, handle: file, access: access, owner: c.session.openArgs(access).Owner.Owner}
	if err := f.openAgain(ctx); err != nil {
		return nil, err
	}
	c.session.addFile(f)
	return f, nil
}

func (s *session) addFile(f *v4File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[f] = struct{}{}
	s.renewLocked()
}

func (s *session) removeFile(f *v4File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, f)
}

func (f *v4File) openAgain(ctx context.Context) error {
	return f.c.do(ctx, true, 0, func(r *results) error {
		if err := r.skip(nfs4.OpSequence); err != nil {
			return err
		}
		return f.reclaimed(r)
	}, putFH(f.handle), f.open(nfs4.ClaimFH))
}

// closeTimeout bounds a CLOSE whose context has ended.
const closeTimeout = time.Second

// Close closes the file, even if ctx has ended. State that the server has lost needs no CLOSE.
func (f *v4File) Close(ctx context.Context) error {
	f.c.session.removeFile(f)
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
	}
	id := f.current()
	err := f.c.do(ctx, true, 0, func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		return r.next(nfs4.OpClose)
	}, putFH(f.handle), operation{nfs4.OpClose, &nfs4.CloseArgs{StateID: id}})
	if isLostState(err) || errors.Is(err, nfs4.ErrStale) {
		return nil
	}
	return err
}

// current returns the stateid with the sequence number that means the latest (RFC 8881 section
// 8.2.2).
func (f *v4File) current() nfs4.StateID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return nfs4.StateID{Other: f.stateid.Other}
}

// isLostState reports whether an error says that the server does not have a stateid any more.
func isLostState(err error) bool {
	var status nfs4.Status
	if !errors.As(err, &status) {
		return false
	}
	switch status {
	case nfs4.ErrBadStateID, nfs4.ErrStaleStateID, nfs4.ErrOldStateID, nfs4.ErrExpired, nfs4.ErrAdminRevoked:
		return true
	}
	return false
}

// revive opens the file anew when a call failed because the server had lost its stateid, bad. It
// reports whether the call can be made again.
func (f *v4File) revive(ctx context.Context, bad nfs4.StateID, err error) bool {
	if !isLostState(err) {
		return false
	}
	f.reopening.Lock()
	defer f.reopening.Unlock()
	if f.current() != bad {
		return true // another call did it
	}
	// A revoked stateid stays until it is freed (RFC 8881 section 8.4.3). One that the server does
	// not know is free already.
	free := operation{nfs4.OpFreeStateID, &nfs4.FreeStateIDArgs{StateID: bad}}
	_ = f.c.do(ctx, true, 0, nothing, free)
	return f.openAgain(ctx) == nil
}

// stamp writes the stateid into a call, at each sending.
func (f *v4File) stamp(b []byte) {
	id := f.current()
	binary.BigEndian.PutUint32(b, id.Seq)
	copy(b[4:], id.Other[:])
}

// stamped returns the stateid in a call.
func stamped(b []byte) (id nfs4.StateID) {
	id.Seq = binary.BigEndian.Uint32(b)
	copy(id.Other[:], b[4:])
	return id
}

func (f *v4File) NewRead(b *bufpool.Buf) (*Op, error) {
	o := &Op{}
	if err := o.setBuf(b); err != nil {
		return nil, fmt.Errorf("READ: %w", err)
	}
	args := &nfs4.ReadArgs{Count: uint32(len(b.B))}
	err := f.c.initOp(o, false, nfs4.OpRead, 0, func(o *Op, r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		return o.readV4(r)
	}, putFH(f.handle), operation{nfs4.OpRead, args})
	if err != nil {
		return nil, err
	}
	f.place(o)
	o.countsAt[0] = o.offsetAt + 8
	o.r.Plan.Results[0].Memory = o.mem[:]
	return o, nil
}

func (f *v4File) NewWrite(b *bufpool.Buf, stable nfs3.Stability) (*Op, error) {
	o := &Op{}
	if err := o.setBuf(b); err != nil {
		return nil, fmt.Errorf("WRITE: %w", err)
	}
	args := &nfs4.WriteArgs{Stable: nfs4.Stability(stable), Data: o.mem[:], Length: len(b.B)}
	err := f.c.initOp(o, false, nfs4.OpWrite, 0, func(o *Op, r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		return o.writeV4(r)
	}, putFH(f.handle), operation{nfs4.OpWrite, args})
	if err != nil {
		return nil, err
	}
	f.place(o)
	o.countsAt[0] = o.offsetAt + 12 // of the data
	return o, nil
}

// readV4 reads the result of READ.
func (o *Op) readV4(r *results) error {
	res := nfs4.ReadRes{Data: o.res.Data}
	if err := r.next(nfs4.OpRead); err != nil {
		return err
	}
	if res.Decode(r.d); r.d.Err() != nil {
		return r.d.Err()
	}
	return o.setRead(res.Length, res.EOF, res.Data)
}

// writeV4 reads the result of WRITE.
func (o *Op) writeV4(r *results) error {
	var res nfs4.WriteRes
	if err := r.next(nfs4.OpWrite); err != nil {
		return err
	}
	if res.Decode(r.d); r.d.Err() != nil {
		return r.d.Err()
	}
	return o.setWrite(res.Count, nfs3.Stability(res.Committed), nfs3.Verifier(res.Verf))
}

// place finds the stateid and the offset in a READ or WRITE, the first operation after PUTFH.
func (f *v4File) place(o *Op) {
	o.file = f
	o.stateAt = o.r.ArgsAt + firstOpAt + 4 + 4 + xdr.Round(len(f.handle)) + 4
	o.offsetAt = o.stateAt + 16
}

// firstOpAt is the position of the operation after SEQUENCE in the arguments of COMPOUND.
const firstOpAt = sequenceAt + 32

func (c *v4) Commit(ctx context.Context, file nfs3.Handle, offset uint64, count uint32) (nfs3.Verifier, error) {
	var res nfs4.CommitRes
	err := c.do(ctx, false, 0, func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		return r.get(nfs4.OpCommit, &res)
	}, putFH(file), operation{nfs4.OpCommit, &nfs4.CommitArgs{Offset: offset, Count: count}})
	return nfs3.Verifier(res.Verf), err
}
