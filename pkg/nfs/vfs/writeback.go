package vfs

import "golang.org/x/sys/unix"

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

// writeback is a range of a file to be written back early. It holds a use of the node.
type writeback struct {
	n            *Node
	from, length int64
}

// writeBack asks for writeback without waiting. If too much waits already, it leaves it to the
// kernel.
func (fs *FS) writeBack(n *Node, from, length int64) {
	n.refs.Add(1)
	select {
	case fs.writebacks <- writeback{n, from, length}:
	default:
		n.Release()
	}
}

// writer starts writebacks until the channel is closed. Starting one may take a while. An error
// stays with the file for its next sync.
func (fs *FS) writer() {
	defer fs.done.Done()
	for w := range fs.writebacks {
		if fd := int(w.n.writer.Load()); fd >= 0 {
			_ = fs.startWriteback(fd, w.from, w.length)
		}
		w.n.Release()
	}
}

func startWriteback(fd int, from, length int64) error {
	return unix.SyncFileRange(fd, from, length, unix.SYNC_FILE_RANGE_WRITE)
}
