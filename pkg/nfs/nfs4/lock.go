package nfs4

import "sluice.dev/sluice/pkg/xdr"

// LockType is an nfs_lock_type4.
type LockType uint32

// Types of locks. Those with W ask for a notification when the lock becomes available.
const (
	LockRead   LockType = 1
	LockWrite  LockType = 2
	LockReadW  LockType = 3
	LockWriteW LockType = 4
)

func (t *LockType) decode(d *xdr.Decoder) {
	*t = LockType(d.Uint32())
	if (*t < LockRead || *t > LockWriteW) && d.Err() == nil {
		d.Fail("lock type is %d, must be 1 to 4", uint32(*t))
	}
}

// Exclusive reports whether t is a lock for writing.
func (t LockType) Exclusive() bool { return t == LockWrite || t == LockWriteW }

// LockArgs are the arguments of LOCK (RFC 8881 section 18.10).
type LockArgs struct {
	Type    LockType
	Reclaim bool
	Offset  uint64
	Length  uint64
	// New: the lock owner has no stateid of the file yet. OpenSequence, OpenStateID and Owner are
	// used then; otherwise LockStateID.
	New          bool
	OpenSequence uint32
	OpenStateID  StateID
	LockSequence uint32
	Owner        Owner
	LockStateID  StateID
}

// Encode writes a.
func (a *LockArgs) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(a.Type))
	e.Bool(a.Reclaim)
	e.Uint64(a.Offset)
	e.Uint64(a.Length)
	e.Bool(a.New)
	if a.New {
		e.Uint32(a.OpenSequence)
		a.OpenStateID.Encode(e)
		e.Uint32(a.LockSequence)
		a.Owner.Encode(e)
	} else {
		a.LockStateID.Encode(e)
		e.Uint32(a.LockSequence)
	}
}

// Decode reads a.
func (a *LockArgs) Decode(d *xdr.Decoder) {
	*a = LockArgs{}
	a.Type.decode(d)
	a.Reclaim = d.Bool()
	a.Offset, a.Length = d.Uint64(), d.Uint64()
	if a.New = d.Bool(); a.New {
		a.OpenSequence = d.Uint32()
		a.OpenStateID.Decode(d)
		a.LockSequence = d.Uint32()
		a.Owner.Decode(d)
	} else {
		a.LockStateID.Decode(d)
		a.LockSequence = d.Uint32()
	}
}

// LockDenied is the result of LOCK and LOCKT with NFS4ERR_DENIED: the conflicting lock.
type LockDenied struct {
	Offset uint64
	Length uint64
	Type   LockType
	Owner  Owner
}

// Encode writes r.
func (r *LockDenied) Encode(e *xdr.Encoder) {
	e.Uint64(r.Offset)
	e.Uint64(r.Length)
	e.Uint32(uint32(r.Type))
	r.Owner.Encode(e)
}

// Decode reads r.
func (r *LockDenied) Decode(d *xdr.Decoder) {
	r.Offset, r.Length = d.Uint64(), d.Uint64()
	r.Type.decode(d)
	r.Owner.Decode(d)
}

// LockTArgs are the arguments of LOCKT (RFC 8881 section 18.11).
type LockTArgs struct {
	Type   LockType
	Offset uint64
	Length uint64
	Owner  Owner
}

// Encode writes a.
func (a *LockTArgs) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(a.Type))
	e.Uint64(a.Offset)
	e.Uint64(a.Length)
	a.Owner.Encode(e)
}

// Decode reads a.
func (a *LockTArgs) Decode(d *xdr.Decoder) {
	a.Type.decode(d)
	a.Offset, a.Length = d.Uint64(), d.Uint64()
	a.Owner.Decode(d)
}

// LockUArgs are the arguments of LOCKU (RFC 8881 section 18.12).
type LockUArgs struct {
	Type     LockType
	Sequence uint32
	StateID  StateID
	Offset   uint64
	Length   uint64
}

// Encode writes a.
func (a *LockUArgs) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(a.Type))
	e.Uint32(a.Sequence)
	a.StateID.Encode(e)
	e.Uint64(a.Offset)
	e.Uint64(a.Length)
}

// Decode reads a.
func (a *LockUArgs) Decode(d *xdr.Decoder) {
	a.Type.decode(d)
	a.Sequence = d.Uint32()
	a.StateID.Decode(d)
	a.Offset, a.Length = d.Uint64(), d.Uint64()
}
