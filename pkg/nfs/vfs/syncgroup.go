package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// syncGroup lets callers that wait for the same sync share one. A sync covers everything from
// before its begin, so a caller that comes while one runs waits for the next.
type syncGroup struct {
	mu      sync.Mutex
	current *syncRound // running, or nil
	next    *syncRound // the one after it
	free    *syncRound
}

// syncRound is one sync.
type syncRound struct {
	callers int
	begins  sync.Cond // for the caller that is to run it, and the others
	done    bool
	err     error
	link    *syncRound
}

// do returns the outcome of a call of sync that began after do.
func (g *syncGroup) do(sync func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.next
	if r == nil {
		r = g.newRound()
		g.next = r
	}
	r.callers++
	for !r.done && (g.current != nil || g.next != r) {
		r.begins.Wait()
	}
	if !r.done { // this caller runs it, for all
		g.current, g.next = r, nil
		g.mu.Unlock()
		err := sync()
		g.mu.Lock()
		r.done, r.err = true, err
		g.current = nil
		r.begins.Broadcast()
		if g.next != nil {
			g.next.begins.Signal()
		}
	}
	err := r.err
	if r.callers--; r.callers == 0 {
		r.link, g.free = g.free, r
	}
	return err
}

func (g *syncGroup) newRound() *syncRound {
	r := g.free
	if r == nil {
		r = &syncRound{}
		r.begins.L = &g.mu
		return r
	}
	g.free = r.link
	r.done, r.err, r.link = false, nil, nil
	return r
}

// ordered reports whether a file system, given by device and type, writes its journal in order: a
// sync of an object then makes every earlier change of that object durable, together with all
// changes made in the same step. So a new object's sync includes its name, and a directory's sync
// the other directory of a rename and the link count of a file. That holds for xfs, and for ext4
// with a journal.
func ordered(dev uint64, kind int64) bool {
	switch kind {
	case unix.XFS_SUPER_MAGIC:
		return true
	case unix.EXT4_SUPER_MAGIC:
		// The name in /proc/fs/jbd2 is that of the device, with a suffix.
		device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
		if err != nil {
			return false
		}
		journals, _ := filepath.Glob("/proc/fs/jbd2/" + filepath.Base(device) + "-*")
		return len(journals) > 0
	}
	return false
}

// syncMade syncs an object that was made in dir, and its name. withName: the object has changed in
// no other step since.
func (fs *FS) syncMade(n, dir *Node, withName bool) error {
	if !withName {
		if err := n.Sync(false); err != nil || fs.ordered {
			return err
		}
	}
	return dir.Sync(false)
}
