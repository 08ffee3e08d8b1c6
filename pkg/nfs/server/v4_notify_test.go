package server

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/xdr"
)

// TestNotifyLock: a client that waits for a lock is called when it may be free.
func TestNotifyLock(t *testing.T) {
	e := newEnv4(t, nil)
	e.put("file", "contents")
	a := e.session("a")
	b, back := e.sessionBack("b", 701)
	oa := a.open("o", accRW, 0, noCreate, "file")
	ob := b.open("o", accRW, 0, noCreate, "file")
	if oa.Flags&nfs4.OpenMayNotifyLock != 0 || ob.Flags&nfs4.OpenMayNotifyLock == 0 {
		t.Errorf("flags %#x without a back channel, %#x with one", oa.Flags, ob.Flags)
	}
	file := putFH(oa.handle)
	held := a.locked(file, lockNew(oa, "holder", nfs4.LockWrite, 0, 10))
	notified := func() {
		t.Helper()
		var n nfs4.CBNotifyLockArgs
		var d xdr.Decoder
		d.ResetBytes(back.next(nfs4.OpCBNotifyLock).args)
		if n.Decode(&d); d.Err() != nil || string(n.Object) != string(ob.handle) || n.Owner.ClientID != b.client || string(n.Owner.Owner) != "waiter" {
			t.Errorf("CB_NOTIFY_LOCK %+v", n)
		}
	}
	b.fails(nfs4.ErrDenied, file, lockNew(ob, "another", nfs4.LockWrite, 5, 1)) // does not wait
	b.fails(nfs4.ErrDenied, file, lockNew(ob, "waiter", nfs4.LockWriteW, 5, 1))
	held = a.locked(file, unlock(held, 0, 5))
	held = a.locked(file, unlock(held, 6, 4))
	if len(back.ops) > 0 {
		t.Error("a notice while the range is locked")
	}
	held = a.locked(file, unlock(held, 5, 1))
	notified()
	mine := b.locked(file, lockNew(ob, "waiter", nfs4.LockWriteW, 5, 1))
	// By its stateid, and the end of the open.
	a.locked(file, lockMore(held, nfs4.LockWrite, 20, 1))
	b.fails(nfs4.ErrDenied, file, lockMore(mine, nfs4.LockReadW, 20, 1))
	a.ok(file, closeOp(oa.StateID))
	notified()
	// A lock of a local process.
	local, err := os.OpenFile(e.path("file"), os.O_RDWR, 0)
	e.must(err)
	defer local.Close()
	e.must(unix.FcntlFlock(local.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: 30, Len: 1}))
	b.fails(nfs4.ErrDenied, file, lockMore(mine, nfs4.LockWriteW, 30, 1))
	notified()
	if n := len(back.ops); n > 0 {
		t.Errorf("%d more callbacks", n)
	}
}
