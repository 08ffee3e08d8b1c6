package iwarp

import (
	"encoding/binary"
	"hash/crc32"
)

// An FPDU carries one ULPDU, that is one DDP segment (RFC 5044 section 4.1):
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|          ULPDU Length         |            ULPDU              |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//	|                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                               |     zeros, to 4 octets        |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                             CRC32C                            |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
const (
	fpduLengthLen = 2
	fpduCRCLen    = 4
	maxULPDU      = 0xffff
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// zeros is the padding of FPDUs.
var zeros [4]byte

// fpduPad is the padding after a ULPDU of n octets.
func fpduPad(n int) int { return -(fpduLengthLen + n) & 3 }

// fpduLen is the length of the FPDU with a ULPDU of n octets, markers aside.
func fpduLen(n int) int { return fpduLengthLen + n + fpduPad(n) + fpduCRCLen }

// checkCRC verifies an FPDU without markers, given whole.
func checkCRC(fpdu []byte) error {
	n := len(fpdu) - fpduCRCLen
	return matchCRC(crc32.Update(0, castagnoli, fpdu[:n]), fpdu[n:])
}

// matchCRC compares the computed sum with the CRC field, which is little-endian (RFC 5044 section
// 4.4).
func matchCRC(sum uint32, field []byte) error {
	if got := binary.LittleEndian.Uint32(field); got != sum {
		return codeCRC.errorf("CRC field %08x, computed %08x", got, sum)
	}
	return nil
}

const markerInterval = 512

// marker inserts MPA markers for a peer that wants them (RFC 5044 section 4.3): every 512 octets of
// the stream, the first one before the first FPDU, 16 zero bits and the distance back to the FPDU's
// start.
type marker struct {
	// until is the number of stream octets before the next marker.
	until int
	sum   uint32 // CRC of the FPDU so far
	start int    // append adds p, a part of an FPDU, to b, with the markers that fall into it.
}

// begin prepares for an FPDU.
func (m *marker) begin() { m.sum, m.start = 0, -1 }

// append adds p, a part of an FPDU, to b, with the markers that fall into it.
func (m *marker) append(b, p []byte) []byte {
	for len(p) > 0 {
		if m.until == 0 {
			var mk [4]byte
			if m.start >= 0 {
				binary.BigEndian.PutUint16(mk[2:], uint16(m.start))
				m.start += len(mk)
			}
			m.sum = crc32.Update(m.sum, castagnoli, mk[:])
			b = append(b, mk[:]...)
			m.until = markerInterval - len(mk)
		}
		k := min(len(p), m.until)
		m.sum = crc32.Update(m.sum, castagnoli, p[:k])
		b = append(b, p[:k]...)
		m.start = max(m.start, 0) + k
		m.until -= k
		p = p[k:]
	}
	return b
}

// end adds the CRC field. A marker right before it counts into the sum, as the last one.
func (m *marker) end(b []byte, withCRC bool) []byte {
	if m.until == 0 {
		var mk [4]byte
		binary.BigEndian.PutUint16(mk[2:], uint16(m.start))
		m.start += len(mk)
		m.sum = crc32.Update(m.sum, castagnoli, mk[:])
		b = append(b, mk[:]...)
		m.until = markerInterval - len(mk)
	}
	var field uint32
	if withCRC {
		field = m.sum
	}
	m.until -= fpduCRCLen
	m.start += fpduCRCLen
	return binary.LittleEndian.AppendUint32(b, field)
}
