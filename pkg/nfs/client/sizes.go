package client

import (
	"sync/atomic"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// transferSizes are the sizes of the last FSINFO, in bytes; 0 before the first.
type transferSizes struct{ rtmax, wtmax, dtpref atomic.Uint32 }

func (s *transferSizes) store(info *nfs3.FSInfoRes) {
	s.rtmax.Store(info.RTMax)
	s.wtmax.Store(info.WTMax)
	s.dtpref.Store(info.DTPref)
}

func (s *transferSizes) ReadSize() int { return transferSize(s.rtmax.Load()) }

func (s *transferSizes) WriteSize() int { return transferSize(s.wtmax.Load()) }

// dirReplySize is the requested size of a part of a list: FSINFO's preference, within bounds.
func (s *transferSizes) dirReplySize() uint32 {
	const least, most = 8 << 10, 64 << 10
	return max(least, min(s.dtpref.Load(), most))
}

// transferSize bounds a server's size, and rounds it down to 4 KiB where it is larger.
func transferSize(said uint32) int {
	const before = 64 << 10
	n := int(min(said, nfs3.MaxData))
	switch {
	case n == 0:
		return before
	case n > 4096:
		return n &^ 4095
	}
	return n
}
