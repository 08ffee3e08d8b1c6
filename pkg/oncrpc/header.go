package oncrpc

import (
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/xdr"
)

// The words of an RPC message (RFC 5531 section 9).
const (
	// RPCVersion is the version of the RPC protocol.
	RPCVersion = 2

	MsgCall  = 0
	MsgReply = 1

	msgAccepted = 0
	msgDenied   = 1

	// MinCallLen and MinReplyLen are the lengths in bytes of a call header with empty credential
	// and verifier, and of an accepted reply header with an empty verifier.
	MinCallLen  = 40
	MinReplyLen = 24

	maxStatusLen = 32 // reply without results, with an empty verifier
)

// AcceptStat is the state of an accepted call.
type AcceptStat uint32

// States of accepted calls.
const (
	Success AcceptStat = iota
	ProgUnavail
	ProgMismatch
	ProcUnavail
	GarbageArgs
	SystemErr
)

func (s AcceptStat) String() string {
	return name(acceptNames[:], uint32(s), "accept_stat")
}

var acceptNames = [...]string{"SUCCESS", "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR"}

// RejectStat is the reason of a denied call.
type RejectStat uint32

// Reasons of denials.
const (
	RPCMismatch RejectStat = iota
	AuthError
)

func (s RejectStat) String() string { return name(rejectNames[:], uint32(s), "reject_stat") }

var rejectNames = [...]string{"RPC_MISMATCH", "AUTH_ERROR"}

// AuthStat is the reason of an AuthError.
type AuthStat uint32

// Reasons of authentication errors.
const (
	AuthOK AuthStat = iota
	AuthBadCred
	AuthRejectedCred
	AuthBadVerf
	AuthRejectedVerf
	AuthTooWeak
	AuthInvalidResp
	AuthFailed
	AuthKerbGeneric
	AuthTimeExpire
	AuthTktFile
	AuthDecode
	AuthNetAddr
	RPCSecGSSCredProblem
	RPCSecGSSCtxProblem
)

func (s AuthStat) String() string { return name(authNames[:], uint32(s), "auth_stat") }

var authNames = [...]string{
	"AUTH_OK", "AUTH_BADCRED", "AUTH_REJECTEDCRED", "AUTH_BADVERF", "AUTH_REJECTEDVERF", "AUTH_TOOWEAK", "AUTH_INVALIDRESP",
	"AUTH_FAILED", "AUTH_KERB_GENERIC", "AUTH_TIMEEXPIRE", "AUTH_TKT_FILE", "AUTH_DECODE", "AUTH_NET_ADDR",
	"RPCSEC_GSS_CREDPROBLEM", "RPCSEC_GSS_CTXPROBLEM",
}

func name(names []string, v uint32, kind string) string {
	if uint64(v) < uint64(len(names)) {
		return names[v]
	}
	return fmt.Sprintf("%s %d", kind, v)
}

// Status is the RPC layer's outcome of a call. The zero value is SUCCESS.
type Status struct {
	Denied bool
	Accept AcceptStat // unless denied
	Reject RejectStat // if denied
	Auth   AuthStat   // if denied with AuthError
	// Low and High are the versions served: of the program with ProgMismatch, of RPC with
	// RPCMismatch.
	Low, High uint32
}

// OK reports whether results follow the header.
func (s Status) OK() bool { return !s.Denied && s.Accept == Success }

// String returns the RFC's name. It allocates only for statuses unknown to the RFC.
func (s Status) String() string {
	switch {
	case !s.Denied:
		return s.Accept.String()
	case s.Reject == AuthError:
		return s.Auth.String()
	default:
		return s.Reject.String()
	}
}

// StatusError is the error of a request whose reply has no results.
type StatusError struct {
	Program, Version, Procedure uint32
	Status                      Status
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("oncrpc: program %d version %d procedure %d: ", e.Program, e.Version, e.Procedure)
	switch {
	case e.Status.Denied && e.Status.Reject == RPCMismatch:
		return s + fmt.Sprintf("the server denied the call: RPC_MISMATCH, it speaks RPC versions %d to %d", e.Status.Low, e.Status.High)
	case e.Status.Denied:
		return s + "the server denied the call: " + e.Status.String()
	case e.Status.Accept == ProgMismatch:
		return s + fmt.Sprintf("the server answered PROG_MISMATCH, it has versions %d to %d", e.Status.Low, e.Status.High)
	default:
		return s + "the server answered " + e.Status.String()
	}
}

// Errors of [DecodeCall] with a reply in the protocol; see [Call.Refuse].
var (
	ErrRPCVersion = errors.New("oncrpc: version of RPC is not 2")
	ErrBadCred    = errors.New("oncrpc: credential is longer than 400 bytes")
	ErrBadVerf    = errors.New("oncrpc: verifier is longer than 400 bytes")
)

// DecodeCall decodes the header of c.Message into c: XID to ArgsAt. Cred and Verf are views of the
// message. The error is ErrRPCVersion, ErrBadCred, ErrBadVerf, or another one if the message is no
// call; [Call.Refuse] handles each.
func DecodeCall(c *Call) error {
	d := &c.dec
	d.Reset(c.Stream, c.Items)
	c.XID = d.Uint32()
	if t := d.Uint32(); t != MsgCall {
		d.Fail("message type is %d, a call has %d", t, MsgCall)
	}
	if v := d.Uint32(); v != RPCVersion && d.Err() == nil {
		return fmt.Errorf("%w: %d", ErrRPCVersion, v)
	}
	c.Program, c.Version, c.Procedure = d.Uint32(), d.Uint32(), d.Uint32()
	if !c.Cred.decode(d) {
		return ErrBadCred
	}
	if !c.Verf.decode(d) {
		return ErrBadVerf
	}
	if err := d.Err(); err != nil {
		return fmt.Errorf("oncrpc: call header: %w", err)
	}
	c.ArgsAt = d.Pos()
	return nil
}

// refusable reports whether the protocol has a reply to an error of DecodeCall.
func refusable(err error) bool {
	return errors.Is(err, ErrRPCVersion) || errors.Is(err, ErrBadCred) || errors.Is(err, ErrBadVerf)
}

// decode reads a. It returns false if the body is longer than the protocol allows. Other errors are
// in d.Err.
func (a *Auth) decode(d *xdr.Decoder) bool {
	a.Flavor, a.Body = d.Uint32(), nil
	n := d.Uint32()
	if n > MaxAuthLen {
		return false
	}
	if n > 0 {
		a.Body = d.Fixed(int(n))
	}
	return true
}

// encode writes a. Its body has at most 400 bytes.
func (a Auth) encode(e *xdr.Encoder) {
	e.Uint32(a.Flavor)
	e.Opaque(a.Body)
}

// EncodeCallHeader writes a call's header: [MinCallLen] bytes and the rounded-up bodies of cred and
// verf, of at most 400 bytes each.
func EncodeCallHeader(e *xdr.Encoder, xid, program, version, procedure uint32, cred, verf Auth) {
	e.Uint32(xid)
	e.Uint32(MsgCall)
	e.Uint32(RPCVersion)
	e.Uint32(program)
	e.Uint32(version)
	e.Uint32(procedure)
	cred.encode(e)
	verf.encode(e)
}

// ReplyHeader is the header of a reply.
type ReplyHeader struct {
	XID    uint32
	Status Status
	Verf   Auth // a view of the message; only accepted replies have one
}

// Encode writes h. It writes a status unknown to RFC 5531 as it is.
func (h *ReplyHeader) Encode(e *xdr.Encoder) {
	e.Uint32(h.XID)
	e.Uint32(MsgReply)
	s := &h.Status
	if s.Denied {
		e.Uint32(msgDenied)
		e.Uint32(uint32(s.Reject))
		if s.Reject != RPCMismatch {
			e.Uint32(uint32(s.Auth))
			return
		}
	} else {
		e.Uint32(msgAccepted)
		h.Verf.encode(e)
		e.Uint32(uint32(s.Accept))
		if s.Accept != ProgMismatch {
			return
		}
	}
	e.Uint32(s.Low)
	e.Uint32(s.High)
}

// Decode reads a reply's header. With SUCCESS, d then stands at the first byte of the results.
func (h *ReplyHeader) Decode(d *xdr.Decoder) error {
	*h = ReplyHeader{XID: d.Uint32()}
	if t := d.Uint32(); t != MsgReply {
		d.Fail("message type is %d, a reply has %d", t, MsgReply)
	}
	s := &h.Status
	switch v := d.Uint32(); v {
	case msgAccepted:
		if !h.Verf.decode(d) {
			d.Fail("verifier is longer than %d bytes", MaxAuthLen)
		}
		s.Accept = AcceptStat(d.Uint32())
		switch {
		case s.Accept == ProgMismatch:
			s.Low, s.High = d.Uint32(), d.Uint32()
		case s.Accept > SystemErr:
			d.Fail("accept_stat is %d, must be 0 to 5", s.Accept)
		}
	case msgDenied:
		s.Denied = true
		s.Reject = RejectStat(d.Uint32())
		switch s.Reject {
		case RPCMismatch:
			s.Low, s.High = d.Uint32(), d.Uint32()
		case AuthError:
			s.Auth = AuthStat(d.Uint32())
		default:
			d.Fail("reject_stat is %d, must be 0 or 1", s.Reject)
		}
	default:
		d.Fail("reply_stat is %d, must be 0 or 1", v)
	}
	if err := d.Err(); err != nil {
		return fmt.Errorf("oncrpc: reply header: %w", err)
	}
	return nil
}
