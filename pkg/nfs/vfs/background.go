package vfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// idleTimeout is how long an unused file stays open, and how long unstable writes wait for COMMIT
// before they are synced.
const idleTimeout = 5 * time.Second

// janitor closes idle files, and releases objects removed by other processes so that their space is
// freed.
func (fs *FS) janitor() {
	defer fs.done.Done()
	tick := time.NewTicker(idleTimeout / 2)
	defer tick.Stop()
	var batch []*Node
	for {
		syncAll := false
		select {
		case <-fs.stop:
			return
		case <-tick.C:
		case <-fs.table.kick:
			syncAll = true
		}
		for i := range fs.table.shard {
			batch = fs.tidy(&fs.table.shard[i], batch[:0], syncAll)
		}
		clear(batch[:cap(batch)])
		fs.table.trim(0)
	}
}

// tidy maintains the nodes of a shard. With syncAll it syncs unstable writes of any age.
func (fs *FS) tidy(s *shard, batch []*Node, syncAll bool) []*Node {
	s.mu.Lock()
	for _, n := range s.nodes {
		if n.refs.Load() == 0 {
			n.refs.Add(1)
			batch = append(batch, n)
		}
	}
	s.mu.Unlock()
	for _, n := range batch {
		var st Stat
		old := fs.now()-n.used.Load() > int64(idleTimeout)
		if n.Stat(&st) == nil && n.dirty() && (old || syncAll) {
			_ = n.Sync(false) // the failure changed the verifier
		}
		n.Release()
		if old && !n.dirty() && n.files() > 1 {
			fs.closeIdle(s, n)
		}
	}
	return batch
}

// closeIdle closes the files of an unused node.
func (fs *FS) closeIdle(s *shard, n *Node) {
	s.mu.Lock()
	r, w := int32(-1), int32(-1)
	if n.refs.Load() == 0 && !n.dead.Load() && !n.dirty() {
		r, w = n.reader.Swap(-1), n.writer.Swap(-1)
		n.position = -1 // a new reader starts elsewhere
	}
	s.mu.Unlock()
	for _, fd := range [...]int32{r, w} {
		if fd >= 0 {
			unix.Close(int(fd))
			fs.table.files.Add(-1)
		}
	}
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
