package vfs

import "golang.org/x/sys/unix"

// Wcc are an object's attributes before and after a change, with no other change through this FS in
// between (weak cache consistency, RFC 1813 section 2.6).
type Wcc struct {
	Before, After       Stat
	HasBefore, HasAfter bool
	// ChangeBefore and ChangeAfter are the change attributes.
	ChangeBefore, ChangeAfter uint64
	// Created: the operation made a new object.
	Created bool
	// Made, if not nil, is called with a new object before its attributes are set and anything is
	// synced.
	Made func(*Node)
}

// before records the attributes before a change.
func (w *Wcc) before(n *Node) {
	if w.HasBefore = n.Stat(&w.Before) == nil; w.HasBefore {
		w.ChangeBefore = n.Change(&w.Before)
	}
}

// after records the attributes after a change. changed is false after a failure, which left the
// object as it was.
func (w *Wcc) after(n *Node, changed bool) {
	if w.HasAfter = n.Stat(&w.After) == nil; !w.HasAfter {
		return
	}
	if changed && w.HasBefore && w.Before.Ctim == w.After.Ctim {
		n.sameTick.Add(1)
	}
	w.ChangeAfter = n.Change(&w.After)
}

func (w *Wcc) made(n *Node) {
	w.Created = true
	if w.Made != nil {
		w.Made(n)
	}
}

// Change returns the object's change attribute (RFC 8881 section 5.8.1.4) for the attributes st. It
// is the ctime in nanoseconds, plus the number of changes through this FS that left the ctime as it
// was: several changes may fall into one tick of the kernel's clock. It grows with every change
// through this FS as long as the object is in memory; then the number begins anew, so a client that
// knows a larger value reads the object again.
func (n *Node) Change(st *Stat) uint64 { return uint64(st.Ctim.Nano()) + n.sameTick.Load() }

// ChangeOf returns the change attribute of the object of a handle that Identify returned.
func (fs *FS) ChangeOf(h *Handle, st *Stat) uint64 {
	if i, _, ok := parse(h.Bytes()); ok {
		if n := fs.table.get(&i); n != nil {
			defer n.Release()
			return n.Change(st)
		}
	}
	return uint64(st.Ctim.Nano())
}

// changing runs change on an object as the caller, and records the attributes around it.
func (fs *FS) changing(n *Node, c *Cred, w *Wcc, change func() error) error {
	n.change.Lock()
	defer n.change.Unlock()
	w.before(n)
	if !w.HasBefore {
		return unix.ESTALE
	}
	entered, err := fs.ids.enter(c)
	if err == nil {
		err = change()
		fs.ids.leave(entered)
	}
	w.after(n, err == nil)
	return err
}
