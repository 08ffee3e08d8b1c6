package rpcrdma

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
)

// recvBuffer is an entry of the receive queue: buffers, cut into segments.
type recvBuffer struct {
	id     uint64
	bufs   []*bufpool.Buf // all or none of them are there
	segs   [][]byte
	layout [][]int // how bufs are cut, and the count of layouts then
	of     uint32
	next   *recvBuffer
}

// make gets and cuts the buffers of a receive.
func (s *recvBuffer) make(pool *bufpool.Pool) error {
	for _, lengths := range s.layout {
		buf, err := pool.Get(sumLengths(lengths))
		if err != nil {
			s.release()
			return err
		}
		s.bufs = append(s.bufs, buf)
	}
	s.segment()
	return nil
}

func (s *recvBuffer) segment() {
	s.segs = s.segs[:0]
	for i, lengths := range s.layout {
		s.segs = cutSegments(s.segs, s.bufs[i].B, lengths)
	}
}

// cutSegments appends the segments of a buffer to dst, as far as the buffer goes.
func cutSegments(dst [][]byte, b []byte, lengths []int) [][]byte {
	for _, l := range lengths {
		if l = min(l, len(b)); l > 0 {
			dst, b = append(dst, b[:l:l]), b[l:]
		}
	}
	return dst
}

func sumLengths(lengths []int) (n int) {
	for _, l := range lengths {
		n += l
	}
	return n
}

func (s *recvBuffer) release() {
	for i, b := range s.bufs {
		b.Release()
		s.bufs[i] = nil
	}
	s.bufs = s.bufs[:0]
}

// moveTo moves the message of n bytes in s to m, and returns it in dst, cut like the receive. m
// owns its buffers from then on. s gets others, or none if there is no memory; buffers without a
// part of the message stay.
func (s *recvBuffer) moveTo(dst [][]byte, n int, m *oncrpc.Message, pool *bufpool.Pool) [][]byte {
	whole := true
	for i, b := range s.bufs {
		k := min(n, len(b.B))
		if n -= k; k == 0 && i > 0 {
			continue
		}
		other, err := pool.Get(len(b.B))
		if err != nil {
			if moved := smaller(pool, k, len(b.B)); moved != nil {
				copy(moved.B, b.B)
				b, other = moved, b
			} else {
				whole = false
			}
		}
		m.Own(b)
		s.bufs[i] = other
		dst = cutSegments(dst, b.B[:k], s.layout[i])
	}
	if whole {
		s.segment()
		return dst
	}
	for _, b := range s.bufs {
		if b != nil {
			b.Release()
		}
	}
	clear(s.bufs)
	s.bufs = s.bufs[:0]
	return dst
}

// smaller gets a buffer for n bytes of a class below size, nil if there is none.
func smaller(pool *bufpool.Pool, n, size int) *bufpool.Buf {
	for k := max(n, 1); k <= size/2; k *= 2 {
		if b, err := pool.Get(k); err == nil {
			b.B = b.B[:n]
			return b
		}
	}
	return nil
}
