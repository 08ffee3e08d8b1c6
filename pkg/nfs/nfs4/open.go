package nfs4

import "sluice.dev/sluice/pkg/xdr"

// Bits of share_access and share_deny of OPEN, and of share_access_want (RFC 8881 section 18.16).
const (
	ShareAccessRead  = 0x0001
	ShareAccessWrite = 0x0002
	ShareAccessBoth  = 0x0003
	ShareDenyNone    = 0x0000
	ShareDenyRead    = 0x0001
	ShareDenyWrite   = 0x0002
	ShareDenyBoth    = 0x0003

	WantDelegMask    = 0xff00
	WantNoPreference = 0x0000
	WantReadDeleg    = 0x0100
	WantWriteDeleg   = 0x0200
	WantAnyDeleg     = 0x0300
	WantNoDeleg      = 0x0400
	WantCancel       = 0x0500

	WantSignalDelegWhenResrcAvail = 0x10000
	WantPushDelegWhenUncontended  = 0x20000
)

// CreateMode is a createmode4.
type CreateMode uint32

// Modes of OPEN with creation.
const (
	Unchecked  CreateMode = 0
	Guarded    CreateMode = 1
	Exclusive  CreateMode = 2
	Exclusive1 CreateMode = 3 // EXCLUSIVE4_1
)

// Claim is an open_claim_type4.
type Claim uint32

// Claims.
const (
	ClaimNull         Claim = 0
	ClaimPrevious     Claim = 1
	ClaimDelegateCur  Claim = 2
	ClaimDelegatePrev Claim = 3
	ClaimFH           Claim = 4
	ClaimDelegCurFH   Claim = 5
	ClaimDelegPrevFH  Claim = 6
)

// OpenArgs are the arguments of OPEN.
type OpenArgs struct {
	Sequence uint32
	Access   uint32
	Deny     uint32
	Owner    Owner
	// Create: the following fields are used. Attrs is for all modes but Exclusive, Verifier for
	// the exclusive ones.
	Create   bool
	Mode     CreateMode
	Verifier Verifier
	Attrs    Attrs
	// Claim selects among the fields that follow. Name is for ClaimNull, ClaimDelegateCur and
	// ClaimDelegatePrev; DelegStateID for ClaimDelegateCur and ClaimDelegCurFH; PrevDelegType for
	// ClaimPrevious.
	Claim         Claim
	Name          []byte
	DelegStateID  StateID
	PrevDelegType DelegType
}

// Encode writes a.
func (a *OpenArgs) Encode(e *xdr.Encoder) {
	e.Uint32(a.Sequence)
	e.Uint32(a.Access)
	e.Uint32(a.Deny)
	a.Owner.Encode(e)
	e.Bool(a.Create)
	if a.Create {
		e.Uint32(uint32(a.Mode))
		if a.Mode == Exclusive || a.Mode == Exclusive1 {
			a.Verifier.Encode(e)
		}
		if a.Mode != Exclusive {
			a.Attrs.Encode(e)
		}
	}
	a.encodeClaim(e)
}

func (a *OpenArgs) encodeClaim(e *xdr.Encoder) {
	e.Uint32(uint32(a.Claim))
	switch a.Claim {
	case ClaimNull, ClaimDelegatePrev:
		e.Opaque(a.Name)
	case ClaimPrevious:
		e.Uint32(uint32(a.PrevDelegType))
	case ClaimDelegateCur:
		a.DelegStateID.Encode(e)
		e.Opaque(a.Name)
	case ClaimDelegCurFH:
		a.DelegStateID.Encode(e)
	}
}

// Decode reads a.
func (a *OpenArgs) Decode(d *xdr.Decoder) {
	*a = OpenArgs{Sequence: d.Uint32(), Access: d.Uint32(), Deny: d.Uint32()}
	a.Owner.Decode(d)
	if a.Create = enum(d, 1, "opentype4") == 1; a.Create {
		a.Mode = CreateMode(enum(d, uint32(Exclusive1), "createmode4"))
		if a.Mode == Exclusive || a.Mode == Exclusive1 {
			a.Verifier.Decode(d)
		}
		if a.Mode != Exclusive {
			a.Attrs.Decode(d)
		}
	}
	a.Claim = Claim(enum(d, uint32(ClaimDelegPrevFH), "open_claim_type4"))
	switch a.Claim {
	case ClaimNull, ClaimDelegatePrev:
		a.Name = d.Opaque(MaxPath)
	case ClaimPrevious:
		a.PrevDelegType = DelegType(enum(d, uint32(DelegNoneExt), "open_delegation_type4"))
	case ClaimDelegateCur:
		a.DelegStateID.Decode(d)
		a.Name = d.Opaque(MaxPath)
	case ClaimDelegCurFH:
		a.DelegStateID.Decode(d)
	}
}

// Flags of OPEN's result.
const (
	OpenConfirm          = 0x00000002
	OpenLockTypePOSIX    = 0x00000004
	OpenPreserveUnlinked = 0x00000008
	OpenMayNotifyLock    = 0x00000020
)

// DelegType is an open_delegation_type4.
type DelegType uint32

// Types of delegations.
const (
	DelegNone    DelegType = 0
	DelegRead    DelegType = 1
	DelegWrite   DelegType = 2
	DelegNoneExt DelegType = 3
)

// Reasons for no delegation: why_no_delegation4.
const (
	WhyNotWanted              = 0
	WhyContention             = 1
	WhyResource               = 2
	WhyNotSuppFType           = 3
	WhyWriteDelegNotSuppFType = 4
	WhyNotSuppUpgrade         = 5
	WhyNotSuppDowngrade       = 6
	WhyCancelled              = 7
	WhyIsDir                  = 8
)

// Delegation is an open_delegation4.
type Delegation struct {
	Type DelegType
	// StateID, Recall and Permissions are for DelegRead and DelegWrite.
	StateID     StateID
	Recall      bool
	Permissions ACE
	// ByBlocks, with Blocks and BlockSize, or Size are the nfs_space_limit4 of DelegWrite.
	ByBlocks          bool
	Size              uint64
	Blocks, BlockSize uint32
	// Why is for DelegNoneExt, and WillPush with WhyContention and WhyResource: the server will
	// push the delegation, or signal that it is available.
	Why      uint32
	WillPush bool
}

// Encode writes g.
func (g *Delegation) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(g.Type))
	switch g.Type {
	case DelegRead, DelegWrite:
		g.StateID.Encode(e)
		e.Bool(g.Recall)
		if g.Type == DelegWrite && g.ByBlocks {
			e.Uint32(2)
			e.Uint32(g.Blocks)
			e.Uint32(g.BlockSize)
		} else if g.Type == DelegWrite {
			e.Uint32(1)
			e.Uint64(g.Size)
		}
		g.Permissions.Encode(e)
	case DelegNoneExt:
		e.Uint32(g.Why)
		if g.Why == WhyContention || g.Why == WhyResource {
			e.Bool(g.WillPush)
		}
	}
}

// Decode reads g.
func (g *Delegation) Decode(d *xdr.Decoder) {
	*g = Delegation{Type: DelegType(enum(d, uint32(DelegNoneExt), "open_delegation_type4"))}
	switch g.Type {
	case DelegRead, DelegWrite:
		g.StateID.Decode(d)
		g.Recall = d.Bool()
		if g.Type == DelegWrite {
			switch by := d.Uint32(); by {
			case 1:
				g.Size = d.Uint64()
			case 2:
				g.ByBlocks = true
				g.Blocks, g.BlockSize = d.Uint32(), d.Uint32()
			default:
				d.Fail("limit_by4 is %d, must be 1 or 2", by)
			}
		}
		g.Permissions.Decode(d)
	case DelegNoneExt:
		g.Why = d.Uint32()
		if g.Why == WhyContention || g.Why == WhyResource {
			g.WillPush = d.Bool()
		}
	}
}

// OpenRes is the result of OPEN.
type OpenRes struct {
	StateID    StateID
	Change     ChangeInfo
	Flags      uint32
	AttrSet    Bitmap
	Delegation Delegation
}

// Encode writes r.
func (r *OpenRes) Encode(e *xdr.Encoder) {
	r.StateID.Encode(e)
	r.Change.Encode(e)
	e.Uint32(r.Flags)
	r.AttrSet.Encode(e)
	r.Delegation.Encode(e)
}

// Decode reads r.
func (r *OpenRes) Decode(d *xdr.Decoder) {
	r.StateID.Decode(d)
	r.Change.Decode(d)
	r.Flags = d.Uint32()
	r.AttrSet.Decode(d)
	r.Delegation.Decode(d)
}

// OpenAttrArgs are the arguments of OPENATTR (RFC 8881 section 18.17).
type OpenAttrArgs struct{ CreateDir bool }

// Encode writes a.
func (a *OpenAttrArgs) Encode(e *xdr.Encoder) { e.Bool(a.CreateDir) }

// Decode reads a.
func (a *OpenAttrArgs) Decode(d *xdr.Decoder) { a.CreateDir = d.Bool() }

// StateIDArgs are arguments and results that are a stateid alone.
type StateIDArgs struct{ StateID StateID }

// Encode writes a.
func (a *StateIDArgs) Encode(e *xdr.Encoder) { a.StateID.Encode(e) }

// Decode reads a.
func (a *StateIDArgs) Decode(d *xdr.Decoder) { a.StateID.Decode(d) }

// Arguments and results with a stateid alone.
type (
	// CloseRes is the result of CLOSE.
	CloseRes = StateIDArgs
	// OpenDowngradeRes is the result of OPEN_DOWNGRADE.
	OpenDowngradeRes = StateIDArgs
	// DelegReturnArgs are the arguments of DELEGRETURN (RFC 8881 section 18.6).
	DelegReturnArgs = StateIDArgs
	// FreeStateIDArgs are the arguments of FREE_STATEID (RFC 8881 section 18.38).
	FreeStateIDArgs = StateIDArgs
	// LockRes is the result of LOCK.
	LockRes = StateIDArgs
	// LockURes is the result of LOCKU.
	LockURes = StateIDArgs
	// OffloadCancelArgs are the arguments of OFFLOAD_CANCEL (RFC 7862 section 15.8).
	OffloadCancelArgs = StateIDArgs
	// OffloadStatusArgs are the arguments of OFFLOAD_STATUS (RFC 7862 section 15.9).
	OffloadStatusArgs = StateIDArgs
)

// CloseArgs are the arguments of CLOSE (RFC 8881 section 18.2).
type CloseArgs struct {
	Sequence uint32
	StateID  StateID
}

// Encode writes a.
func (a *CloseArgs) Encode(e *xdr.Encoder) {
	e.Uint32(a.Sequence)
	a.StateID.Encode(e)
}

// Decode reads a.
func (a *CloseArgs) Decode(d *xdr.Decoder) {
	a.Sequence = d.Uint32()
	a.StateID.Decode(d)
}

// OpenDowngradeArgs are the arguments of OPEN_DOWNGRADE (RFC 8881 section 18.18).
type OpenDowngradeArgs struct {
	StateID      StateID
	Sequence     uint32
	Access, Deny uint32
}

// Encode writes a.
func (a *OpenDowngradeArgs) Encode(e *xdr.Encoder) {
	a.StateID.Encode(e)
	e.Uint32(a.Sequence)
	e.Uint32(a.Access)
	e.Uint32(a.Deny)
}

// Decode reads a.
func (a *OpenDowngradeArgs) Decode(d *xdr.Decoder) {
	a.StateID.Decode(d)
	a.Sequence, a.Access, a.Deny = d.Uint32(), d.Uint32(), d.Uint32()
}

// TestStateIDArgs are the arguments of TEST_STATEID (RFC 8881 section 18.48).
type TestStateIDArgs struct{ StateIDs []StateID }

// Encode writes a.
func (a *TestStateIDArgs) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(len(a.StateIDs)))
	for i := range a.StateIDs {
		a.StateIDs[i].Encode(e)
	}
}

// Decode reads a.
func (a *TestStateIDArgs) Decode(d *xdr.Decoder) {
	a.StateIDs = a.StateIDs[:0]
	for range count(d, MaxStateIDs, "stateids") {
		a.StateIDs = append(a.StateIDs, StateID{})
		a.StateIDs[len(a.StateIDs)-1].Decode(d)
	}
}

// TestStateIDRes is the result of TEST_STATEID.
type TestStateIDRes struct{ Statuses []Status }

// Encode writes r.
func (r *TestStateIDRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(len(r.Statuses)))
	for _, s := range r.Statuses {
		e.Uint32(uint32(s))
	}
}

// Decode reads r.
func (r *TestStateIDRes) Decode(d *xdr.Decoder) {
	r.Statuses = r.Statuses[:0]
	for range count(d, MaxStateIDs, "statuses") {
		r.Statuses = append(r.Statuses, Status(d.Uint32()))
	}
}

// WantDelegationArgs are the arguments of WANT_DELEGATION (RFC 8881 section 18.49). Claim is
// ClaimFH, ClaimDelegPrevFH or ClaimPrevious, which has a PrevDelegType.
type WantDelegationArgs struct {
	Want          uint32
	Claim         Claim
	PrevDelegType DelegType
}

// Encode writes a.
func (a *WantDelegationArgs) Encode(e *xdr.Encoder) {
	e.Uint32(a.Want)
	e.Uint32(uint32(a.Claim))
	if a.Claim == ClaimPrevious {
		e.Uint32(uint32(a.PrevDelegType))
	}
}

// Decode reads a.
func (a *WantDelegationArgs) Decode(d *xdr.Decoder) {
	*a = WantDelegationArgs{Want: d.Uint32(), Claim: Claim(d.Uint32())}
	switch a.Claim {
	case ClaimFH, ClaimDelegPrevFH:
	case ClaimPrevious:
		a.PrevDelegType = DelegType(enum(d, uint32(DelegNoneExt), "open_delegation_type4"))
	default:
		d.Fail("claim of WANT_DELEGATION is %d, must be 1, 4 or 6", uint32(a.Claim))
	}
}

// WantDelegationRes is the result of WANT_DELEGATION.
type WantDelegationRes struct{ Delegation Delegation }

// Encode writes r.
func (r *WantDelegationRes) Encode(e *xdr.Encoder) { r.Delegation.Encode(e) }

// Decode reads r.
func (r *WantDelegationRes) Decode(d *xdr.Decoder) { r.Delegation.Decode(d) }
