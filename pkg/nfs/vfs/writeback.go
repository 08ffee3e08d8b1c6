package vfs

// earlyWriteback is how many bytes of a file are written without a sync before the kernel is asked
// to bring them to the disk. So a COMMIT after a long file waits for its last part only.
const earlyWriteback = 8 << 20

// fresh describes the unstable writes to a file since the last early writeback.
type fresh struct {
	bytes     int64
	low, high int64 // the range that they cover
}

// add notes a write. It returns a range to be written back, if there is one: writes that leave gaps
// or write the same bytes again are left to the kernel.
func (f *fresh) add(off, n int64) (from, length int64) {
	if f.bytes == 0 {
		f.low, f.high = off, off
	}
	f.low, f.high = min(f.low, off), max(f.high, off+n)
	if f.bytes += n; f.bytes < earlyWriteback {
		return 0, 0
	}
	span := f.high - f.low
	dense := span <= f.bytes+f.bytes/4 && span >= f.bytes/2
	f.bytes = 0
	if !dense {
		return 0, 0
	}
	return f.low, span
}
