package iwarp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/rdma"
)

// termCode names an error on the wire: layer, error type and error code of a Terminate
// (RFC 5040 section 4.8, RFC 5041 section 7.2, RFC 5044 section 8, RFC 6581 section 8).
type termCode struct{ layer, etype, code uint8 }

const (
	layerRDMAP = 0
	layerDDP   = 1
	layerMPA   = 2
)

var (
	codeRDMAPLocal      = termCode{0, 0, 0x00}
	codeReadSTag        = termCode{0, 1, 0x00}
	codeReadBounds      = termCode{0, 1, 0x01}
	codeReadAccess      = termCode{0, 1, 0x02}
	codeReadWrap        = termCode{0, 1, 0x04}
	codeInvalidate      = termCode{0, 1, 0x09}
	codeRDMAPVersion    = termCode{0, 2, 0x05}
	codeOpcode          = termCode{0, 2, 0x06}
	codeOperation       = termCode{0, 2, 0xff}
	codeSTag            = termCode{1, 1, 0x00}
	codeBounds          = termCode{1, 1, 0x01}
	codeWrap            = termCode{1, 1, 0x03}
	codeTaggedVersion   = termCode{1, 1, 0x04}
	codeQueue           = termCode{1, 2, 0x01}
	codeNoBuffer        = termCode{1, 2, 0x02}
	codeMSN             = termCode{1, 2, 0x03}
	codeMO              = termCode{1, 2, 0x04}
	codeTooLong         = termCode{1, 2, 0x05}
	codeUntaggedVersion = termCode{1, 2, 0x06}
	codeCRC             = termCode{2, 0, 0x02}
	codeFPDUStart       = termCode{2, 0, 0x03}
	codeIRD             = termCode{2, 0, 0x06}
)

// termNames describes all codes of the RFCs; 0x100 stands for any code.
var termNames = map[[3]uint16]string{
	{0, 0, 0x100}: "RDMAP local catastrophic error",
	{0, 1, 0x00}:  "invalid STag",
	{0, 1, 0x01}:  "base or bounds violation",
	{0, 1, 0x02}:  "access rights violation",
	{0, 1, 0x03}:  "STag not associated with the stream",
	{0, 1, 0x04}:  "tagged offset wraps",
	{0, 1, 0x09}:  "STag cannot be invalidated",
	{0, 1, 0xff}:  "unspecified remote protection error",
	{0, 2, 0x05}:  "invalid RDMAP version",
	{0, 2, 0x06}:  "unexpected opcode",
	{0, 2, 0x07}:  "catastrophic error of the stream",
	{0, 2, 0x08}:  "global catastrophic error",
	{0, 2, 0x09}:  "STag cannot be invalidated",
	{0, 2, 0xff}:  "unspecified remote operation error",
	{1, 0, 0x100}: "DDP local catastrophic error",
	{1, 1, 0x00}:  "invalid STag",
	{1, 1, 0x01}:  "base or bounds violation",
	{1, 1, 0x02}:  "STag not associated with the stream",
	{1, 1, 0x03}:  "tagged offset wraps",
	{1, 1, 0x04}:  "invalid DDP version",
	{1, 2, 0x01}:  "invalid queue number",
	{1, 2, 0x02}:  "no buffer for the message",
	{1, 2, 0x03}:  "message sequence number out of range",
	{1, 2, 0x04}:  "invalid message offset",
	{1, 2, 0x05}:  "message too long for its buffer",
	{1, 2, 0x06}:  "invalid DDP version",
	{2, 0, 0x01}:  "TCP connection lost",
	{2, 0, 0x02}:  "CRC error",
	{2, 0, 0x03}:  "FPDU start not found",
	{2, 0, 0x04}:  "invalid MPA start-up frame",
	{2, 0, 0x05}:  "MPA local catastrophic error",
	{2, 0, 0x06}:  "insufficient IRD",
	{2, 0, 0x07}:  "no matching RTR option",
}

func (c termCode) String() string {
	layers := [...]string{"RDMAP", "DDP", "MPA"}
	layer := "unknown layer"
	if int(c.layer) < len(layers) {
		layer = layers[c.layer]
	}
	name, ok := termNames[[3]uint16{uint16(c.layer), uint16(c.etype), uint16(c.code)}]
	if !ok {
		if name, ok = termNames[[3]uint16{uint16(c.layer), uint16(c.etype), 0x100}]; !ok {
			name = "unknown error"
		}
	}
	return fmt.Sprintf("%s: %s (%d/%d/%02x)", layer, name, c.layer, c.etype, c.code)
}

// errorf makes the error for which this code is to be sent.
func (c termCode) errorf(format string, args ...any) *TerminateError {
	return &TerminateError{Layer: c.layer, Type: c.etype, Code: c.code, Reason: fmt.Sprintf(format, args...)}
}

// TerminateError is the end of a connection by a Terminate message (RFC 5040 section 4.8), sent or
// received.
type TerminateError struct {
	// Remote means that the peer sent it. Otherwise it was sent to the peer, as far as the
	// connection allowed.
	Remote bool
	// Layer (0 RDMAP, 1 DDP, 2 MPA), Type and Code are as the RFCs define them.
	Layer, Type, Code uint8
	// Reason describes the fault in the peer's message. For a received Terminate it has the octets
	// and their meaning by Linux siw, which packs the control word in the order of the host's bit
	// fields.
	Reason string

	// The Terminate's part about the segment in error.
	segmentLen  int
	ddp         []byte
	readRequest []byte
}

// asTerminate finds the Terminate in err, or returns nil.
func asTerminate(err error) *TerminateError {
	var t *TerminateError
	errors.As(err, &t)
	return t
}

// about adds the segment in error to an error that requires a Terminate, unless it has one: its DDP
// header, its length, and the Read Request if it is one.
func about(err error, ddp []byte, segmentLen int, readRequest []byte) error {
	if e := asTerminate(err); e != nil && e.ddp == nil {
		e.ddp, e.segmentLen, e.readRequest = ddp, segmentLen, readRequest
	}
	return err
}

// payload is the Terminate to send. RFC 5040 figure 10 lists the included headers.
func (e *TerminateError) payload() []byte {
	t := terminate{termCode: termCode{e.Layer, e.Type, e.Code}}
	if len(e.ddp) > 0 && (e.Layer == layerDDP || e.Layer == layerRDMAP && e.Type != 0) {
		t.ddp, t.segmentLen = e.ddp, uint16(e.segmentLen)
		if e.Layer == layerRDMAP && e.Type == 1 {
			t.readRequest = e.readRequest
		}
	}
	return t.append(make([]byte, 0, terminateMaxLen))
}

func (e *TerminateError) Error() string {
	who := "terminated the connection"
	if e.Remote {
		who = "the peer terminated the connection"
	}
	return fmt.Sprintf("iwarp: %s: %v: %s", who, termCode{e.Layer, e.Type, e.Code}, e.Reason)
}

// As makes an rdma.AccessError of a received Terminate that names the STag which our Write or Read
// must not use. That of siw does not: its flags are in other places.
func (e *TerminateError) As(target any) bool {
	access, ok := target.(**rdma.AccessError)
	if !ok || !e.Remote || e.Type != 1 {
		return false
	}
	switch {
	case e.Layer == layerRDMAP && len(e.readRequest) == readRequestLen:
		*access = &rdma.AccessError{Handle: binary.BigEndian.Uint32(e.readRequest[16:])}
	case e.Layer == layerDDP && len(e.ddp) == taggedLen:
		*access = &rdma.AccessError{Handle: binary.BigEndian.Uint32(e.ddp[2:])}
	default:
		return false
	}
	return true
}

// terminate is the payload of a Terminate message (RFC 5040 section 4.8).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	| Layer | EType |  Error Code   |M|D|R|        reserved         |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  DDP Segment Length (M)       | the DDP header in error (D),  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+ 14 or 18 octets, then the     |
//	| RDMAP header (R), 28 octets                                   |
type terminate struct {
	termCode
	segmentLen  uint16 // with ddp
	ddp         []byte // nil, or the header of the segment in error
	readRequest []byte // nil, or the Read Request in error
}

const terminateMaxLen = 4 + 2 + untaggedLen + readRequestLen

func (t *terminate) append(b []byte) []byte {
	var flags byte
	if t.ddp != nil {
		flags |= 0x80 | 0x40
	}
	if t.readRequest != nil {
		flags |= 0x20
	}
	b = append(b, t.layer<<4|t.etype, t.code, flags, 0)
	if t.ddp != nil {
		b = binary.BigEndian.AppendUint16(b, t.segmentLen)
		b = append(b, t.ddp...)
	}
	return append(b, t.readRequest...)
}

// parseTerminate reads as much as there is: the peer gives up in any case, so a short Terminate is
// no further error.
func parseTerminate(b []byte) (t terminate, n int, err error) {
	if len(b) < 4 {
		return t, 0, codeOperation.errorf("Terminate of %d bytes, want 4 at least", len(b))
	}
	t.termCode = termCode{b[0] >> 4, b[0] & 15, b[1]}
	flags := b[2]
	n = 4
	if flags&0x80 != 0 && len(b) >= n+2 {
		t.segmentLen = binary.BigEndian.Uint16(b[n:])
		n += 2
	}
	if flags&0x40 != 0 && len(b) > n {
		if k := headerLen(b[n]); len(b) >= n+k {
			t.ddp = b[n : n+k]
			n += k
		}
	}
	if flags&0x20 != 0 && len(b) >= n+readRequestLen {
		t.readRequest = b[n : n+readRequestLen]
		n += readRequestLen
	}
	return t, n, nil
}

// receivedTerminate converts the peer's Terminate to the error that Serve returns.
func receivedTerminate(b []byte) error {
	t, _, err := parseTerminate(b)
	if err != nil {
		return err
	}
	siw := termCode{t.etype, t.layer, t.code} // the nibbles the other way round
	return &TerminateError{Remote: true, Layer: t.layer, Type: t.etype, Code: t.code,
		ddp: slices.Clone(t.ddp), readRequest: slices.Clone(t.readRequest),
		Reason: fmt.Sprintf("octets %x; if the peer is Linux siw: %v", b[:min(len(b), terminateMaxLen)], siw)}
}
