package nfs4

import "sluice.dev/sluice/pkg/xdr"

// ReferringCall names a call of a client: a referring_call4 with its session.
type ReferringCall struct {
	Session  SessionID
	Sequence uint32
	Slot     uint32
}

// CBSequenceArgs are the arguments of CB_SEQUENCE (RFC 8881 section 20.9).
type CBSequenceArgs struct {
	Session     SessionID
	Sequence    uint32
	Slot        uint32
	HighestSlot uint32
	CacheThis   bool
	// Referring are the calls to which the callback refers. Each is a list of its own on the wire.
	Referring []ReferringCall
}

// Encode writes a.
func (a *CBSequenceArgs) Encode(e *xdr.Encoder) {
	a.Session.Encode(e)
	e.Uint32(a.Sequence)
	e.Uint32(a.Slot)
	e.Uint32(a.HighestSlot)
	e.Bool(a.CacheThis)
	e.Uint32(uint32(len(a.Referring)))
	for i := range a.Referring {
		r := &a.Referring[i]
		r.Session.Encode(e)
		e.Uint32(1)
		e.Uint32(r.Sequence)
		e.Uint32(r.Slot)
	}
}

// Decode reads a.
func (a *CBSequenceArgs) Decode(d *xdr.Decoder) {
	a.Session.Decode(d)
	a.Sequence, a.Slot, a.HighestSlot = d.Uint32(), d.Uint32(), d.Uint32()
	a.CacheThis = d.Bool()
	a.Referring = a.Referring[:0]
	for range count(d, MaxReferring, "lists of referring calls") {
		var s SessionID
		s.Decode(d)
		for range count(d, MaxReferring-len(a.Referring), "referring calls") {
			a.Referring = append(a.Referring, ReferringCall{Session: s, Sequence: d.Uint32(), Slot: d.Uint32()})
		}
	}
}

// CBSequenceRes is the result of CB_SEQUENCE.
type CBSequenceRes struct {
	Session           SessionID
	Sequence          uint32
	Slot              uint32
	HighestSlot       uint32
	TargetHighestSlot uint32
}

// Encode writes r.
func (r *CBSequenceRes) Encode(e *xdr.Encoder) {
	r.Session.Encode(e)
	for _, v := range [...]uint32{r.Sequence, r.Slot, r.HighestSlot, r.TargetHighestSlot} {
		e.Uint32(v)
	}
}

// Decode reads r.
func (r *CBSequenceRes) Decode(d *xdr.Decoder) {
	r.Session.Decode(d)
	r.Sequence, r.Slot, r.HighestSlot, r.TargetHighestSlot = d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32()
}

// CBRecallArgs are the arguments of CB_RECALL (RFC 8881 section 20.2).
type CBRecallArgs struct {
	StateID  StateID
	Truncate bool
	Object   Handle
}

// Encode writes a.
func (a *CBRecallArgs) Encode(e *xdr.Encoder) {
	a.StateID.Encode(e)
	e.Bool(a.Truncate)
	a.Object.Encode(e)
}

// Decode reads a.
func (a *CBRecallArgs) Decode(d *xdr.Decoder) {
	a.StateID.Decode(d)
	a.Truncate = d.Bool()
	a.Object.Decode(d)
}

// Kinds of objects of CB_RECALL_ANY, numbers in its bitmap.
const (
	RecallAnyReadDeleg  = 0
	RecallAnyWriteDeleg = 1
	RecallAnyDirDeleg   = 2
)

// CBRecallAnyArgs are the arguments of CB_RECALL_ANY (RFC 8881 section 20.6).
type CBRecallAnyArgs struct {
	ObjectsToKeep uint32
	Types         Bitmap
}

// Encode writes a.
func (a *CBRecallAnyArgs) Encode(e *xdr.Encoder) {
	e.Uint32(a.ObjectsToKeep)
	a.Types.Encode(e)
}

// Decode reads a.
func (a *CBRecallAnyArgs) Decode(d *xdr.Decoder) {
	a.ObjectsToKeep = d.Uint32()
	a.Types.Decode(d)
}

// CBRecallSlotArgs are the arguments of CB_RECALL_SLOT (RFC 8881 section 20.8).
type CBRecallSlotArgs struct{ TargetHighestSlot uint32 }

// Encode writes a.
func (a *CBRecallSlotArgs) Encode(e *xdr.Encoder) { e.Uint32(a.TargetHighestSlot) }

// Decode reads a.
func (a *CBRecallSlotArgs) Decode(d *xdr.Decoder) { a.TargetHighestSlot = d.Uint32() }

// CBNotifyLockArgs are the arguments of CB_NOTIFY_LOCK (RFC 8881 section 20.11).
type CBNotifyLockArgs struct {
	Object Handle
	Owner  Owner
}

// Encode writes a.
func (a *CBNotifyLockArgs) Encode(e *xdr.Encoder) {
	a.Object.Encode(e)
	a.Owner.Encode(e)
}

// Decode reads a.
func (a *CBNotifyLockArgs) Decode(d *xdr.Decoder) {
	a.Object.Decode(d)
	a.Owner.Decode(d)
}

// CBGetAttrArgs are the arguments of CB_GETATTR (RFC 8881 section 20.1).
type CBGetAttrArgs struct {
	Object  Handle
	Request Bitmap
}

// Encode writes a.
func (a *CBGetAttrArgs) Encode(e *xdr.Encoder) {
	a.Object.Encode(e)
	a.Request.Encode(e)
}

// Decode reads a.
func (a *CBGetAttrArgs) Decode(d *xdr.Decoder) {
	a.Object.Decode(d)
	a.Request.Decode(d)
}

// CBGetAttrRes is the result of CB_GETATTR.
type CBGetAttrRes = AttrsArgs

// CBOffloadArgs are the arguments of CB_OFFLOAD (RFC 7862 section 16.1). Response is for OK,
// otherwise Count bytes were copied.
type CBOffloadArgs struct {
	Object   Handle
	StateID  StateID
	Status   Status
	Response WriteResponse
	Count    uint64
}

// Encode writes a.
func (a *CBOffloadArgs) Encode(e *xdr.Encoder) {
	a.Object.Encode(e)
	a.StateID.Encode(e)
	e.Uint32(uint32(a.Status))
	if a.Status == OK {
		a.Response.encode(e)
	} else {
		e.Uint64(a.Count)
	}
}

// Decode reads a.
func (a *CBOffloadArgs) Decode(d *xdr.Decoder) {
	*a = CBOffloadArgs{}
	a.Object.Decode(d)
	a.StateID.Decode(d)
	if a.Status = Status(d.Uint32()); a.Status == OK {
		a.Response.decode(d)
	} else {
		a.Count = d.Uint64()
	}
}
