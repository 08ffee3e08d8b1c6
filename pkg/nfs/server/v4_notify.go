package server

import (
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/xdr"
)

// foreignLockRetry is the time after which a client tries again to get a lock that a local process
// has: the server does not see its end.
const foreignLockRetry = time.Second

// notify sends CB_NOTIFY_LOCK (RFC 8881 section 20.11).
func (v *v4Server) notify(n state.LockNotice) {
	v.callbacks.send(&callback{
		client: n.Client, op: nfs4.OpCBNotifyLock, size: 64 + nfs4.MaxHandle + len(n.Owner),
		encode: func(e *xdr.Encoder) bool {
			a := nfs4.CBNotifyLockArgs{Object: n.Handle, Owner: nfs4.Owner{ClientID: n.Client.ID(), Owner: n.Owner}}
			a.Encode(e)
			return true
		},
	})
}

// maxForeignWaiters bounds the notices that wait for their time. Further clients try again by
// themselves.
const maxForeignWaiters = 1024

// notifyLater has a client try again after a while.
func (v *v4Server) notifyLater(n state.LockNotice) {
	if v.foreignWaiters.Add(1) > maxForeignWaiters {
		v.foreignWaiters.Add(-1)
		return
	}
	v.callbacks.after(foreignLockRetry, func() {
		v.foreignWaiters.Add(-1)
		v.notify(n)
	})
}
