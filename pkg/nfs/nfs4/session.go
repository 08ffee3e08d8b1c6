package nfs4

import "sluice.dev/sluice/pkg/xdr"

// Flags of EXCHANGE_ID.
const (
	ExchangeSupportsMovedRefer = 0x00000001
	ExchangeSupportsMovedMigr  = 0x00000002
	ExchangeSupportsFenceOps   = 0x00000004
	ExchangeBindPrincStateID   = 0x00000100
	ExchangeUseNonPNFS         = 0x00010000
	ExchangeUsePNFSMDS         = 0x00020000
	ExchangeUsePNFSDS          = 0x00040000
	ExchangeUpdateConfirmed    = 0x40000000
	ExchangeConfirmed          = 0x80000000
	// ExchangeArgs are the flags that a client may set.
	ExchangeArgs = ExchangeSupportsMovedRefer | ExchangeSupportsMovedMigr | ExchangeSupportsFenceOps |
		ExchangeBindPrincStateID | ExchangeUseNonPNFS | ExchangeUsePNFSMDS | ExchangeUsePNFSDS |
		ExchangeUpdateConfirmed
)

// Ways of state protection: state_protect_how4.
const (
	ProtectNone     = 0
	ProtectMachCred = 1
	ProtectSSV      = 2
)

// ImplID is an nfs_impl_id4.
type ImplID struct {
	Domain, Name []byte
	Date         Time
}

func (i *ImplID) encode(e *xdr.Encoder) {
	e.Opaque(i.Domain)
	e.Opaque(i.Name)
	i.Date.Encode(e)
}

func (i *ImplID) decode(d *xdr.Decoder) {
	i.Domain, i.Name = d.Opaque(MaxOpaque), d.Opaque(MaxOpaque)
	i.Date.Decode(d)
}

// optionalImplID reads an array of at most one nfs_impl_id4.
func optionalImplID(d *xdr.Decoder, i *ImplID) (has bool) {
	*i = ImplID{}
	if has = count(d, 1, "nfs_impl_id4") == 1; has {
		i.decode(d)
	}
	return has
}

func putOptionalImplID(e *xdr.Encoder, i *ImplID, has bool) {
	e.Bool(has) // a count of 0 or 1
	if has {
		i.encode(e)
	}
}

// ProtectOps is a state_protect_ops4: bitmaps of numbers of operations.
type ProtectOps struct{ MustEnforce, MustAllow Bitmap }

func (p *ProtectOps) encode(e *xdr.Encoder) {
	p.MustEnforce.Encode(e)
	p.MustAllow.Encode(e)
}

func (p *ProtectOps) decode(d *xdr.Decoder) {
	p.MustEnforce.Decode(d)
	p.MustAllow.Decode(d)
}

// ExchangeIDArgs are the arguments of EXCHANGE_ID (RFC 8881 section 18.35). Ops is for
// ProtectMachCred and ProtectSSV; the other parameters of ProtectSSV are read and dropped.
type ExchangeIDArgs struct {
	Verifier Verifier
	Owner    []byte
	Flags    uint32
	Protect  uint32
	Ops      ProtectOps
	HasImpl  bool
	Impl     ImplID
}

// Encode writes a, with empty parameters of ProtectSSV.
func (a *ExchangeIDArgs) Encode(e *xdr.Encoder) {
	a.Verifier.Encode(e)
	e.Opaque(a.Owner)
	e.Uint32(a.Flags)
	e.Uint32(a.Protect)
	if a.Protect != ProtectNone {
		a.Ops.encode(e)
	}
	if a.Protect == ProtectSSV {
		for range 4 { // algorithms of hashes and of encryption, window, handles
			e.Uint32(0)
		}
	}
	putOptionalImplID(e, &a.Impl, a.HasImpl)
}

// Decode reads a.
func (a *ExchangeIDArgs) Decode(d *xdr.Decoder) {
	a.Verifier.Decode(d)
	a.Owner = d.Opaque(MaxOpaque)
	a.Flags = d.Uint32()
	a.Protect = enum(d, ProtectSSV, "state_protect_how4")
	a.Ops = ProtectOps{}
	if a.Protect != ProtectNone {
		a.Ops.decode(d)
	}
	if a.Protect == ProtectSSV {
		for range 2 {
			for range count(d, MaxAlgorithms, "algorithms") {
				d.Opaque(MaxOpaque)
			}
		}
		d.Uint64()
	}
	a.HasImpl = optionalImplID(d, &a.Impl)
}

// ExchangeIDRes is the result of EXCHANGE_ID. Protect is ProtectNone or ProtectMachCred: this
// package has no results of ProtectSSV.
type ExchangeIDRes struct {
	ClientID uint64
	Sequence uint32
	Flags    uint32
	Protect  uint32
	Ops      ProtectOps
	// MinorID and MajorID are the server_owner4.
	MinorID uint64
	MajorID []byte
	Scope   []byte
	HasImpl bool
	Impl    ImplID
}

// Encode writes r.
func (r *ExchangeIDRes) Encode(e *xdr.Encoder) {
	e.Uint64(r.ClientID)
	e.Uint32(r.Sequence)
	e.Uint32(r.Flags)
	e.Uint32(r.Protect)
	if r.Protect != ProtectNone {
		r.Ops.encode(e)
	}
	e.Uint64(r.MinorID)
	e.Opaque(r.MajorID)
	e.Opaque(r.Scope)
	putOptionalImplID(e, &r.Impl, r.HasImpl)
}

// Decode reads r.
func (r *ExchangeIDRes) Decode(d *xdr.Decoder) {
	r.ClientID = d.Uint64()
	r.Sequence, r.Flags = d.Uint32(), d.Uint32()
	r.Protect = enum(d, ProtectMachCred, "state_protect_how4")
	r.Ops = ProtectOps{}
	if r.Protect != ProtectNone {
		r.Ops.decode(d)
	}
	r.MinorID = d.Uint64()
	r.MajorID, r.Scope = d.Opaque(MaxOpaque), d.Opaque(MaxOpaque)
	r.HasImpl = optionalImplID(d, &r.Impl)
}

// ChannelAttrs is a channel_attrs4. MaxOperations bounds the operations of a COMPOUND, MaxRequests
// the slots.
type ChannelAttrs struct {
	HeaderPadSize         uint32
	MaxRequestSize        uint32
	MaxResponseSize       uint32
	MaxResponseSizeCached uint32
	MaxOperations         uint32
	MaxRequests           uint32
	HasRDMAIRD            bool
	RDMAIRD               uint32
}

// Encode writes c.
func (c *ChannelAttrs) Encode(e *xdr.Encoder) {
	for _, v := range [...]uint32{
		c.HeaderPadSize, c.MaxRequestSize, c.MaxResponseSize, c.MaxResponseSizeCached, c.MaxOperations, c.MaxRequests,
	} {
		e.Uint32(v)
	}
	e.Bool(c.HasRDMAIRD) // a count of 0 or 1
	if c.HasRDMAIRD {
		e.Uint32(c.RDMAIRD)
	}
}

// Decode reads c.
func (c *ChannelAttrs) Decode(d *xdr.Decoder) {
	c.HeaderPadSize, c.MaxRequestSize, c.MaxResponseSize = d.Uint32(), d.Uint32(), d.Uint32()
	c.MaxResponseSizeCached, c.MaxOperations, c.MaxRequests = d.Uint32(), d.Uint32(), d.Uint32()
	c.RDMAIRD = 0
	if c.HasRDMAIRD = count(d, 1, "ca_rdma_ird") == 1; c.HasRDMAIRD {
		c.RDMAIRD = d.Uint32()
	}
}

// Security flavors of callbacks (RFC 5531).
const (
	AuthNone = 0
	AuthSys  = 1
	AuthGSS  = 6
)

// SecParms is a callback_sec_parms4. The other fields are for AuthSys; handles of AuthGSS are read
// and dropped.
type SecParms struct {
	Flavor   uint32
	Stamp    uint32
	Machine  []byte
	UID, GID uint32
	GIDs     [16]uint32
	NGIDs    int
}

func (s *SecParms) encode(e *xdr.Encoder) {
	e.Uint32(s.Flavor)
	switch s.Flavor {
	case AuthSys:
		e.Uint32(s.Stamp)
		e.Opaque(s.Machine)
		e.Uint32(s.UID)
		e.Uint32(s.GID)
		e.Uint32(uint32(s.NGIDs))
		for _, g := range s.GIDs[:s.NGIDs] {
			e.Uint32(g)
		}
	case AuthGSS:
		e.Uint32(1)
		e.Uint32(0)
		e.Uint32(0)
	}
}

func (s *SecParms) decode(d *xdr.Decoder) {
	*s = SecParms{Flavor: d.Uint32()}
	switch s.Flavor {
	case AuthNone:
	case AuthSys:
		s.Stamp = d.Uint32()
		s.Machine = d.Opaque(255)
		s.UID, s.GID = d.Uint32(), d.Uint32()
		s.NGIDs = count(d, len(s.GIDs), "groups of AUTH_SYS")
		for i := range s.NGIDs {
			s.GIDs[i] = d.Uint32()
		}
	case AuthGSS:
		if service := d.Uint32(); service < 1 || service > 3 {
			d.Fail("rpc_gss_svc_t is %d, must be 1 to 3", service)
		}
		d.Opaque(MaxOpaque)
		d.Opaque(MaxOpaque)
	default:
		d.Fail("security flavor of callbacks is %d, must be 0, 1 or 6", s.Flavor)
	}
}

func encodeSecParms(e *xdr.Encoder, list []SecParms) {
	e.Uint32(uint32(len(list)))
	for i := range list {
		list[i].encode(e)
	}
}

func decodeSecParms(d *xdr.Decoder, list []SecParms) []SecParms {
	list = list[:0]
	for range count(d, MaxSecParms, "callback_sec_parms4") {
		list = append(list, SecParms{})
		list[len(list)-1].decode(d)
	}
	return list
}

// Flags of CREATE_SESSION.
const (
	SessionPersist      = 0x00000001
	SessionConnBackChan = 0x00000002
	SessionConnRDMA     = 0x00000004
	// SessionFlags are all of them.
	SessionFlags = SessionPersist | SessionConnBackChan | SessionConnRDMA
)

// CreateSessionArgs are the arguments of CREATE_SESSION (RFC 8881 section 18.36).
type CreateSessionArgs struct {
	ClientID   uint64
	Sequence   uint32
	Flags      uint32
	Fore, Back ChannelAttrs
	CBProgram  uint32
	SecParms   []SecParms
}

// Encode writes a.
func (a *CreateSessionArgs) Encode(e *xdr.Encoder) {
	e.Uint64(a.ClientID)
	e.Uint32(a.Sequence)
	e.Uint32(a.Flags)
	a.Fore.Encode(e)
	a.Back.Encode(e)
	e.Uint32(a.CBProgram)
	encodeSecParms(e, a.SecParms)
}

// Decode reads a.
func (a *CreateSessionArgs) Decode(d *xdr.Decoder) {
	a.ClientID = d.Uint64()
	a.Sequence, a.Flags = d.Uint32(), d.Uint32()
	a.Fore.Decode(d)
	a.Back.Decode(d)
	a.CBProgram = d.Uint32()
	a.SecParms = decodeSecParms(d, a.SecParms)
}

// CreateSessionRes is the result of CREATE_SESSION.
type CreateSessionRes struct {
	Session    SessionID
	Sequence   uint32
	Flags      uint32
	Fore, Back ChannelAttrs
}

// Encode writes r.
func (r *CreateSessionRes) Encode(e *xdr.Encoder) {
	r.Session.Encode(e)
	e.Uint32(r.Sequence)
	e.Uint32(r.Flags)
	r.Fore.Encode(e)
	r.Back.Encode(e)
}

// Decode reads r.
func (r *CreateSessionRes) Decode(d *xdr.Decoder) {
	r.Session.Decode(d)
	r.Sequence, r.Flags = d.Uint32(), d.Uint32()
	r.Fore.Decode(d)
	r.Back.Decode(d)
}

// Status flags of SEQUENCE: sr_status_flags.
const (
	SeqCBPathDown           = 0x00000001
	SeqCBGSSExpiring        = 0x00000002
	SeqCBGSSExpired         = 0x00000004
	SeqExpiredAllRevoked    = 0x00000008
	SeqExpiredSomeRevoked   = 0x00000010
	SeqAdminRevoked         = 0x00000020
	SeqRecallableRevoked    = 0x00000040
	SeqLeaseMoved           = 0x00000080
	SeqRestartReclaimNeeded = 0x00000100
	SeqCBPathDownSession    = 0x00000200
	SeqBackchannelFault     = 0x00000400
	SeqDevidChanged         = 0x00000800
	SeqDevidDeleted         = 0x00001000
)

// SequenceArgs are the arguments of SEQUENCE (RFC 8881 section 18.46).
type SequenceArgs struct {
	Session     SessionID
	Sequence    uint32
	Slot        uint32
	HighestSlot uint32
	CacheThis   bool
}

// Encode writes a.
func (a *SequenceArgs) Encode(e *xdr.Encoder) {
	a.Session.Encode(e)
	e.Uint32(a.Sequence)
	e.Uint32(a.Slot)
	e.Uint32(a.HighestSlot)
	e.Bool(a.CacheThis)
}

// Decode reads a.
func (a *SequenceArgs) Decode(d *xdr.Decoder) {
	a.Session.Decode(d)
	a.Sequence, a.Slot, a.HighestSlot = d.Uint32(), d.Uint32(), d.Uint32()
	a.CacheThis = d.Bool()
}

// SequenceRes is the result of SEQUENCE.
type SequenceRes struct {
	Session           SessionID
	Sequence          uint32
	Slot              uint32
	HighestSlot       uint32
	TargetHighestSlot uint32
	StatusFlags       uint32
}

// Encode writes r.
func (r *SequenceRes) Encode(e *xdr.Encoder) {
	r.Session.Encode(e)
	for _, v := range [...]uint32{r.Sequence, r.Slot, r.HighestSlot, r.TargetHighestSlot, r.StatusFlags} {
		e.Uint32(v)
	}
}

// Decode reads r.
func (r *SequenceRes) Decode(d *xdr.Decoder) {
	r.Session.Decode(d)
	r.Sequence, r.Slot, r.HighestSlot = d.Uint32(), d.Uint32(), d.Uint32()
	r.TargetHighestSlot, r.StatusFlags = d.Uint32(), d.Uint32()
}

// DestroySessionArgs are the arguments of DESTROY_SESSION (RFC 8881 section 18.37).
type DestroySessionArgs struct{ Session SessionID }

// Encode writes a.
func (a *DestroySessionArgs) Encode(e *xdr.Encoder) { a.Session.Encode(e) }

// Decode reads a.
func (a *DestroySessionArgs) Decode(d *xdr.Decoder) { a.Session.Decode(d) }

// ClientIDArgs are the arguments of operations with a clientid alone.
type ClientIDArgs struct{ ClientID uint64 }

// Encode writes a.
func (a *ClientIDArgs) Encode(e *xdr.Encoder) { e.Uint64(a.ClientID) }

// Decode reads a.
func (a *ClientIDArgs) Decode(d *xdr.Decoder) { a.ClientID = d.Uint64() }

// DestroyClientIDArgs are the arguments of DESTROY_CLIENTID (RFC 8881 section 18.50).
type DestroyClientIDArgs = ClientIDArgs

// DelegPurgeArgs are the arguments of DELEGPURGE (RFC 8881 section 18.5).
type DelegPurgeArgs = ClientIDArgs

// ReclaimCompleteArgs are the arguments of RECLAIM_COMPLETE (RFC 8881 section 18.51).
type ReclaimCompleteArgs struct{ OneFS bool }

// Encode writes a.
func (a *ReclaimCompleteArgs) Encode(e *xdr.Encoder) { e.Bool(a.OneFS) }

// Decode reads a.
func (a *ReclaimCompleteArgs) Decode(d *xdr.Decoder) { a.OneFS = d.Bool() }

// Directions of BIND_CONN_TO_SESSION: channel_dir_from_client4, and channel_dir_from_server4
// without the last two.
const (
	ChannelFore       = 1
	ChannelBack       = 2
	ChannelBoth       = 3
	ChannelForeOrBoth = 3
	ChannelBackOrBoth = 7
)

// BindConnToSessionArgs are the arguments of BIND_CONN_TO_SESSION (RFC 8881 section 18.34), and
// its result.
type BindConnToSessionArgs struct {
	Session SessionID
	Dir     uint32
	UseRDMA bool
}

// BindConnToSessionRes is the result of BIND_CONN_TO_SESSION.
type BindConnToSessionRes = BindConnToSessionArgs

// Encode writes a.
func (a *BindConnToSessionArgs) Encode(e *xdr.Encoder) {
	a.Session.Encode(e)
	e.Uint32(a.Dir)
	e.Bool(a.UseRDMA)
}

// Decode reads a.
func (a *BindConnToSessionArgs) Decode(d *xdr.Decoder) {
	a.Session.Decode(d)
	switch a.Dir = d.Uint32(); a.Dir {
	case ChannelFore, ChannelBack, ChannelBoth, ChannelBackOrBoth:
	default:
		d.Fail("direction of the channel is %d, must be 1, 2, 3 or 7", a.Dir)
	}
	a.UseRDMA = d.Bool()
}

// BackchannelCtlArgs are the arguments of BACKCHANNEL_CTL (RFC 8881 section 18.33).
type BackchannelCtlArgs struct {
	CBProgram uint32
	SecParms  []SecParms
}

// Encode writes a.
func (a *BackchannelCtlArgs) Encode(e *xdr.Encoder) {
	e.Uint32(a.CBProgram)
	encodeSecParms(e, a.SecParms)
}

// Decode reads a.
func (a *BackchannelCtlArgs) Decode(d *xdr.Decoder) {
	a.CBProgram = d.Uint32()
	a.SecParms = decodeSecParms(d, a.SecParms)
}
