package proxy_test

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
)

// TestBackendComesLater checks that calls wait for a backend that is not up yet.
func TestBackendComesLater(t *testing.T) {
	// No connection uses this address as its own, so nobody takes the port meanwhile.
	l, err := net.Listen("tcp", "127.0.9.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	f := newFront(t, "tcp", address, nil)
	c := f.dial(t, "tcp", nil)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			b, err := c.Call(t.Context(), nfs3.MountProgram, 3, nfs3.MountProcMnt, fields("/"))
			if err != nil || len(b) < 8 || !bytes.Equal(b[:4], fields(0)) {
				t.Errorf("MNT: %x, %v", b, err)
			}
		})
	}
	if st := f.Status(); st.Healthy {
		t.Errorf("the backend is said to be healthy: %+v", st)
	}
	s := serve(t, address, pool(t), newFake(t))
	t.Cleanup(s.stop)
	wg.Wait()
	if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(mnt(t, c, "/"))); status != nfs3.OK || err != nil {
		t.Errorf("GETATTR: %v, %v", status, err)
	}
}

// TestBackendRestarts checks that no call fails across restarts of the backend, and that calls keep
// the client's XIDs.
func TestBackendRestarts(t *testing.T) {
	b, s, f := start(t, nil)
	c := f.dial(t, "tcp", nil)
	root := mnt(t, c, "/")
	var mu sync.Mutex
	sent := map[uint32]bool{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, e, err := oncrpc.NewRequest(c.Pool, nfs3.Program, 3, nfs3.ProcWrite, c.Cred, 1024)
				if err != nil {
					t.Error(err)
					return
				}
				args := write3(root, "data")
				copy(e.Grow(len(args)), args)
				r.Plan.MaxReply = 256
				err = oncrpc.Do(t.Context(), c.Requester, r)
				if err == nil {
					_, err = r.Results()
				}
				mu.Lock()
				sent[r.XID] = true
				mu.Unlock()
				r.Free()
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
			}
		})
	}
	for range 5 {
		b.holding(writes) // guarantees unanswered calls
		var xids []uint32
		for range 8 {
			c := <-b.held
			xids = append(xids, c.XID)
			c.Supersede()
		}
		s.kill()
		b.drop()
		again := serve(t, s.address, s.pool, b)
		*s = *again
		// no call is sent a third time
		for answered := false; !answered; time.Sleep(100 * time.Microsecond) {
			mu.Lock()
			answered = !slices.ContainsFunc(xids, func(xid uint32) bool { return !sent[xid] })
			mu.Unlock()
		}
	}
	close(stop)
	wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	again := 0
	for xid, n := range b.xids {
		if !sent[xid] {
			t.Errorf("the backend got the XID %#x, which the client did not send", xid)
		}
		if n > 1 {
			again++
		}
	}
	if len(b.xids) != len(sent) || again < 8 {
		t.Errorf("the client made %d calls, the backend got %d different ones, %d of them again", len(sent), len(b.xids), again)
	}
}

// TestBackendLosesGSS checks that an RPCSEC_GSS call is not sent twice: its client's connection is
// closed, and the client sends it with a new sequence number.
func TestBackendLosesGSS(t *testing.T) {
	b, s, f := start(t, func(c *proxy.Config) { c.GSS = true })
	write := func(c *nfs4test.Caller, seq int) error {
		// krb5p
		c.Cred = oncrpc.Auth{Flavor: oncrpc.RPCSecGSS, Body: fields(1, 0, seq, 3, "context")}
		_, err := c.Call(t.Context(), nfs3.Program, 3, nfs3.ProcWrite, raw("ciphertext, nobody reads it"))
		return err
	}
	b.holding(writes)
	c, lost := f.dial(t, "tcp", nil), make(chan error)
	go func() { lost <- write(c, 1) }()
	held := <-b.held
	held.Supersede()
	s.kill()
	b.drop()
	*s = *serve(t, s.address, s.pool, b)
	if err := <-lost; err == nil {
		t.Error("a call was sent again with the same sequence number")
	}
	if err := write(f.dial(t, "tcp", nil), 2); err != nil {
		t.Errorf("with a new sequence number: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for xid, n := range b.xids {
		if n != 1 {
			t.Errorf("the backend got the call %#x %d times", xid, n)
		}
	}
}

// call3Async calls GETATTR and runs meanwhile during the call.
func call3Async(t *testing.T, c *nfs4test.Caller, handle []byte, meanwhile func()) (status nfs3.Status, b []byte, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		status, b, err = call3(t, c, nfs3.ProcGetAttr, getAttr3(handle))
	}()
	meanwhile()
	<-done
	if err != nil {
		t.Error(err)
	}
	return status, b, err
}

// TestClientGone checks that all memory of a disconnected client's calls is returned, whether the
// backend answers or not.
func TestClientGone(t *testing.T) {
	for _, network := range []string{"tcp", "rdma"} {
		for _, answers := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, answered %v", network, answers), func(t *testing.T) {
				b, _, f := start(t, nil)
				c := f.dial(t, network, nil)
				root := mnt(t, c, "/")
				b.holding(func(c *oncrpc.Call) bool { return reads(c) || writes(c) })
				var wg sync.WaitGroup
				for range 10 {
					for procedure, args := range map[uint32]raw{
						nfs3.ProcRead: read3(root), nfs3.ProcWrite: write3(root, string(make([]byte, 60<<10))),
					} {
						wg.Go(func() {
							if _, err := c.Call(t.Context(), nfs3.Program, 3, procedure, args); err == nil {
								t.Error("a call was answered")
							}
						})
					}
				}
				var held []*oncrpc.Call
				for range 20 {
					held = append(held, <-b.held)
				}
				_ = c.Requester.Close()
				wg.Wait()
				for _, c := range held {
					if answers {
						b.answer(c)
					} else {
						c.Supersede()
					}
				}
			})
		}
	}
}

// TestOverload checks that a client is disconnected when too many bytes wait for the backend.
func TestOverload(t *testing.T) {
	b, s, f := start(t, func(c *proxy.Config) { c.WaitLimit = 100 << 10 })
	c := f.dial(t, "tcp", nil)
	root := mnt(t, c, "/")
	s.kill()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if status, _, err := call3(t, c, nfs3.ProcWrite, write3(root, string(make([]byte, 64<<10)))); err == nil {
				t.Errorf("a call was answered: %v", status)
			}
		})
	}
	wg.Wait()
	if st := f.Status(); st.Overloads == 0 {
		t.Errorf("status: %+v", st)
	}
	*s = *serve(t, s.address, s.pool, b)
	again := f.dial(t, "tcp", nil)
	if status, _, err := call3(t, again, nfs3.ProcWrite, write3(root, "data")); status != nfs3.OK || err != nil {
		t.Errorf("on a new connection: %v, %v", status, err)
	}
}

// TestSoftTimeout checks that clients of a slow backend get JUKEBOX, or DELAY of SEQUENCE in a
// session, that late replies are dropped, and that calls which must not be repeated wait.
func TestSoftTimeout(t *testing.T) {
	b, _, f := start(t, func(c *proxy.Config) { c.SoftTimeout, c.Minor[1] = time.Second, true })
	for _, network := range []string{"tcp", "rdma"} {
		t.Run(network, func(t *testing.T) {
			c := f.dial(t, network, nil)
			root := mnt(t, c, "/")
			session, err := nfs4test.NewSession(t.Context(), c, 1, "owner", 1, 0, 0)
			if err != nil {
				t.Fatal(err)
			}

			b.holding(reads)
			if status, _, err := call3(t, c, nfs3.ProcRead, read3(root)); status != nfs3.ErrJukebox || err != nil {
				t.Errorf("READ: %v, %v, want JUKEBOX", status, err)
			}
			late := <-b.held
			b.holding(nil)
			b.answer(late)
			status, data, err := call3(t, c, nfs3.ProcRead, read3(root))
			for status == nfs3.ErrJukebox && err == nil { // a busy machine is slow, too
				status, data, err = call3(t, c, nfs3.ProcRead, read3(root))
			}
			if status != nfs3.OK || err != nil || !bytes.HasSuffix(data, []byte("data")) {
				t.Errorf("READ again: %v, %q, %v", status, data, err)
			}

			b.holding(compounds)
			ops := []raw{op(schema.OpPutRootFH), op(schema.OpGetFH)}
			res, err := session.Next(t.Context(), 0, ops...)
			if err != nil {
				t.Fatal(err)
			}
			if res.Status != 10008 || len(res.Ops) != 1 || res.Ops[0].Code != schema.OpSequence {
				t.Errorf("status %d, %d results, want DELAY of SEQUENCE", res.Status, len(res.Ops))
			}
			late = <-b.held
			b.holding(nil)
			b.answer(late)
			for res.Status == 10008 && err == nil {
				res, err = session.Again(t.Context(), 0, ops...)
			}
			if err != nil || res.Status != 0 || len(res.Ops) != 3 {
				t.Errorf("the same turn again: %+v, %v", res, err)
			}

			b.holding(writes)
			done := make(chan nfs3.Status, 1)
			go func() {
				status, _, err := call3(t, c, nfs3.ProcWrite, write3(root, "data"))
				if err != nil {
					t.Error(err)
				}
				done <- status
			}()
			late = <-b.held
			b.holding(func(c *oncrpc.Call) bool { return reads(c) || writes(c) })
			// the WRITE has timed out too
			if status, _, err := call3(t, c, nfs3.ProcRead, read3(root)); status != nfs3.ErrJukebox || err != nil {
				t.Errorf("READ: %v, %v, want JUKEBOX", status, err)
			}
			select {
			case status := <-done:
				t.Errorf("WRITE was answered %v, which the backend had not said", status)
			default:
			}
			b.answer(late)
			if status := <-done; status != nfs3.OK {
				t.Errorf("WRITE: %v", status)
			}
			b.drop()
		})
	}
	if st := f.Status(); st.Delayed < 6 || st.SoftTimeouts < st.Delayed {
		t.Errorf("status: %+v", st)
	}
}
