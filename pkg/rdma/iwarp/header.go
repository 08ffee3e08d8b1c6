package iwarp

import "encoding/binary"

// opcode is the kind of an RDMAP message (RFC 5040 section 4.1).
type opcode uint8

const (
	opWrite        opcode = 0
	opReadRequest  opcode = 1
	opReadResponse opcode = 2
	opSend         opcode = 3
	opSendInv      opcode = 4
	opSendSE       opcode = 5
	opSendSEInv    opcode = 6
	opTerminate    opcode = 7
)

func (o opcode) String() string {
	names := [...]string{"RDMA Write", "RDMA Read Request", "RDMA Read Response", "Send", "Send with Invalidate",
		"Send with SE", "Send with SE and Invalidate", "Terminate"}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown opcode"
}

// tagged reports whether messages of this kind are placed by STag.
func (o opcode) tagged() bool { return o == opWrite || o == opReadResponse }

// The queues of untagged messages (RFC 5040 section 4.2).
const (
	queueSend      = 0
	queueRead      = 1
	queueTerminate = 2
)

const (
	taggedLen      = 14
	untaggedLen    = 18
	readRequestLen = 28

	flagTagged = 0x80
	flagLast   = 0x40
	ddpVersion = 1
	// rdmapVersion is the version in the two high bits of the RDMAP control octet.
	rdmapVersion = 1
)

// taggedHeader opens a segment of an RDMA Write or Read Response (RFC 5041 section 4.2, RFC 5040
// section 4.1).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	                                +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	                                |1|L| Rsv   |DV |RV |Rsv| opcode|
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                             STag                              |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                      tagged offset, 64 bits                   |
type taggedHeader struct {
	last bool
	op   opcode
	stag uint32
	to   uint64
}

// untaggedHeader opens a segment of any other message (RFC 5041 section 4.3, RFC 5040 section 4.1).
//
//	                                +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	                                |0|L| Rsv   |DV |RV |Rsv| opcode|
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|            STag to invalidate (opcodes 4 and 6), or 0         |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                         queue number                          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                    message sequence number                    |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                        message offset                         |
type untaggedHeader struct {
	last bool
	op   opcode
	stag uint32
	qn   uint32
	msn  uint32
	mo   uint32
}

// readRequest is the payload of an RDMA Read Request (RFC 5040 section 4.4).
//
//	|                        Data Sink STag                         |
//	|                 Data Sink tagged offset, 64 bits              |
//	|                       RDMA Read Message Size                  |
//	|                       Data Source STag                        |
//	|                Data Source tagged offset, 64 bits             |
type readRequest struct {
	sinkSTag   uint32
	sinkTO     uint64
	size       uint32
	sourceSTag uint32
	sourceTO   uint64
}

// headerLen is the length of the DDP header of a ULPDU whose first octet is control.
func headerLen(control byte) int {
	if control&flagTagged != 0 {
		return taggedLen
	}
	return untaggedLen
}

// checkControl verifies versions, and that the opcode fits the tagged bit.
func checkControl(b []byte) error {
	isTagged := b[0]&flagTagged != 0
	if v := b[0] & 3; v != ddpVersion {
		code := codeUntaggedVersion
		if isTagged {
			code = codeTaggedVersion
		}
		return code.errorf("DDP version %d, want %d", v, ddpVersion)
	}
	if v := b[1] >> 6; v != rdmapVersion {
		return codeRDMAPVersion.errorf("RDMAP version %d, want %d", v, rdmapVersion)
	}
	op := opcode(b[1] & 15)
	if op > opTerminate {
		return codeOpcode.errorf("RDMAP opcode %d, want at most %d", op, opTerminate)
	}
	if op.tagged() != isTagged {
		return codeOpcode.errorf("%v with the tagged flag %v", op, isTagged)
	}
	return nil
}

// parseTagged reads a tagged header from the start of a ULPDU and returns its length.
func parseTagged(b []byte) (h taggedHeader, n int, err error) {
	if len(b) < taggedLen {
		return h, 0, codeFPDUStart.errorf("tagged ULPDU of %d bytes, its header alone has %d", len(b), taggedLen)
	}
	if err := checkControl(b); err != nil {
		return h, 0, err
	}
	return taggedHeader{
		last: b[0]&flagLast != 0,
		op:   opcode(b[1] & 15),
		stag: binary.BigEndian.Uint32(b[2:]),
		to:   binary.BigEndian.Uint64(b[6:]),
	}, taggedLen, nil
}

func (h taggedHeader) append(b []byte) []byte {
	b = append(b, flagTagged|bit(h.last, flagLast)|ddpVersion, rdmapVersion<<6|byte(h.op))
	b = binary.BigEndian.AppendUint32(b, h.stag)
	return binary.BigEndian.AppendUint64(b, h.to)
}

// parseUntagged reads an untagged header from the start of a ULPDU and returns its length.
func parseUntagged(b []byte) (h untaggedHeader, n int, err error) {
	if len(b) < untaggedLen {
		return h, 0, codeFPDUStart.errorf("untagged ULPDU of %d bytes, its header alone has %d", len(b), untaggedLen)
	}
	if err := checkControl(b); err != nil {
		return h, 0, err
	}
	return untaggedHeader{
		last: b[0]&flagLast != 0,
		op:   opcode(b[1] & 15),
		stag: binary.BigEndian.Uint32(b[2:]),
		qn:   binary.BigEndian.Uint32(b[6:]),
		msn:  binary.BigEndian.Uint32(b[10:]),
		mo:   binary.BigEndian.Uint32(b[14:]),
	}, untaggedLen, nil
}

func (h untaggedHeader) append(b []byte) []byte {
	b = append(b, bit(h.last, flagLast)|ddpVersion, rdmapVersion<<6|byte(h.op))
	b = binary.BigEndian.AppendUint32(b, h.stag)
	b = binary.BigEndian.AppendUint32(b, h.qn)
	b = binary.BigEndian.AppendUint32(b, h.msn)
	return binary.BigEndian.AppendUint32(b, h.mo)
}

// parseReadRequest reads the payload of a Read Request, which has this one length.
func parseReadRequest(b []byte) (r readRequest, n int, err error) {
	if len(b) > readRequestLen {
		return r, 0, codeTooLong.errorf("Read Request of %d bytes, want %d", len(b), readRequestLen)
	}
	if len(b) < readRequestLen {
		return r, 0, codeOperation.errorf("Read Request of %d bytes, want %d", len(b), readRequestLen)
	}
	return readRequest{
		sinkSTag:   binary.BigEndian.Uint32(b),
		sinkTO:     binary.BigEndian.Uint64(b[4:]),
		size:       binary.BigEndian.Uint32(b[12:]),
		sourceSTag: binary.BigEndian.Uint32(b[16:]),
		sourceTO:   binary.BigEndian.Uint64(b[20:]),
	}, readRequestLen, nil
}

func (r readRequest) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.sinkSTag)
	b = binary.BigEndian.AppendUint64(b, r.sinkTO)
	b = binary.BigEndian.AppendUint32(b, r.size)
	b = binary.BigEndian.AppendUint32(b, r.sourceSTag)
	return binary.BigEndian.AppendUint64(b, r.sourceTO)
}
