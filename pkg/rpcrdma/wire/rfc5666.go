package wire

import "encoding/binary"

// PaddingSize is the addition of RDMA_MSGP to MinSize.
const PaddingSize = 8

// AppendPadding appends the words of RDMA_MSGP that precede the lists (RFC 5666 section 4.3).
func AppendPadding(dst []byte, align, threshold uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, align), threshold)
}

func (h *Header) parsePadding(r *Reader) {
	h.Align, h.Threshold = r.Uint32(), r.Uint32()
	if h.Align&(h.Align-1) != 0 {
		r.Fail("rdma_align", "alignment is %d, must be a power of two or 0", h.Align)
	}
}
