package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// start starts a fake backend and a proxy in front of it.
func start(t testing.TB, change func(*proxy.Config)) (*fake, *service, *front) {
	t.Helper()
	f := newFake(t)
	s := serve(t, "127.0.9.1:0", pool(t), f)
	t.Cleanup(func() { f.drop(); s.stop() })
	return f, s, newFront(t, "tcp", s.address, change)
}

// TestAccess: the rules of now hold for connections that are older.
func TestAccess(t *testing.T) {
	_, _, f := start(t, nil)
	for _, network := range []string{"tcp", "rdma"} {
		c := f.dial(t, network, nil)
		root := mnt(t, c, "/")
		set := func(rules ...access.Rule) {
			if err := f.SetAccess(rules); err != nil {
				t.Fatal(err)
			}
		}
		tryOne := func(want string) {
			t.Helper()
			status, _, err := call3(t, c, nfs3.ProcWrite, write3(root, "data"))
			var refused *oncrpc.StatusError
			got := fmt.Sprint(status)
			if errors.As(err, &refused) {
				got = refused.Status.String()
			} else if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("over %s: %s, want %s", network, got, want)
			}
		}
		tryOne(fmt.Sprint(nfs3.OK))
		set()
		tryOne("AUTH_TOOWEAK")
		set(access.Rule{Networks: everyone, ReadOnly: true})
		tryOne(fmt.Sprint(nfs3.ErrROFS))
		set(access.Rule{Networks: everyone})
		tryOne(fmt.Sprint(nfs3.OK))
	}
}

// TestBackendComesLater: calls wait for a backend that is not there yet.
func TestBackendComesLater(t *testing.T) {
	// No connection of anybody has this address as its own, so nobody takes the port meanwhile.
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

// TestBackendRestarts: while the backend goes and comes, no call fails, and each comes with the client's own XID.
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
		b.holding(writes) // so that some are without an answer
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
		for answered := false; !answered; time.Sleep(100 * time.Microsecond) { // no call is sent a third time
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

// TestBackendLosesGSS: a call with RPCSEC_GSS that was sent is not sent again: its client's connection is closed, and the client has to send it
// with a new sequence number.
func TestBackendLosesGSS(t *testing.T) {
	b, s, f := start(t, func(c *proxy.Config) { c.GSS = true })
	write := func(c *nfs4test.Caller, seq int) error {
		c.Cred = oncrpc.Auth{Flavor: oncrpc.RPCSecGSS, Body: fields(1, 0, seq, 3, "context")} // krb5p
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

// TestOneRoot: while the backend tells its root to version 4 and not to version 3, calls that need the latter wait for it.
func TestOneRoot(t *testing.T) {
	b := newFake(t)
	b.shut = true
	s := serve(t, "127.0.9.1:0", pool(t), b)
	t.Cleanup(func() { b.drop(); s.stop() })
	f := newFront(t, "tcp", s.address, func(c *proxy.Config) { c.Minor[1] = true })
	c := f.dial(t, "tcp", nil)
	session, err := nfs4test.NewSession(t.Context(), c, 1, "owner", 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	next := func() {
		if _, err := session.Next(t.Context(), 0, op(schema.OpPutRootFH), op(schema.OpGetFH)); err != nil {
			t.Error(err)
		}
	}
	next() // the root of version 4 is known
	waiting := make(chan []byte)
	go func() { waiting <- mnt(t, c, "/") }()
	for range 100 {
		next()
		select {
		case <-waiting:
			t.Fatal("a root was told that nobody knows")
		default:
		}
	}
	b.mu.Lock()
	b.shut = false
	b.mu.Unlock()
	if got, want := <-waiting, f.signer.Append(nil, b.root, sign.Max3); !bytes.Equal(got, want) {
		t.Errorf("MNT: handle %x, must be %x", got, want)
	}
}

// TestRootStays: a root that was known stays so while the backend, which was away, does not tell it again; LOOKUPP is guarded against it as before.
func TestRootStays(t *testing.T) {
	b := newFake(t)
	b.root3 = []byte("the root's handle in version 3")
	s := serve(t, "127.0.9.1:0", pool(t), b)
	t.Cleanup(func() { b.drop(); s.stop() })
	f := newFront(t, "tcp", s.address, func(c *proxy.Config) { c.Minor[1] = true })
	c := f.dial(t, "tcp", nil)
	root := mnt(t, c, "/")
	session, err := nfs4test.NewSession(t.Context(), c, 1, "owner", 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := f.signer.Append(nil, []byte("a directory"), sign.Max4)
	up := func() {
		t.Helper()
		b.holding(compounds)
		done := make(chan error)
		go func() {
			_, err := session.Next(t.Context(), 0, op(schema.OpPutFH, dir), op(schema.OpLookupP))
			done <- err
		}()
		call := <-b.held
		var w schema.Walker
		if err := w.Args(schema.Proc{Program: nfs3.Program, Version: 4, Procedure: 1}, call.Args()); err != nil {
			t.Error(err)
		}
		var got []uint32
		for i := range w.Ops {
			got = append(got, w.Ops[i].Code)
		}
		b.holding(nil)
		b.answer(call)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []uint32{schema.OpSequence, schema.OpPutFH, schema.OpNVerify, schema.OpNVerify, schema.OpLookupP}; !slices.Equal(got, want) {
			t.Fatalf("the backend gets the operations %d, must get %d", got, want)
		}
	}
	up()
	s.kill()
	b.mu.Lock()
	b.shut = true
	b.mu.Unlock()
	if status, _, _ := call3Async(t, c, root, func() { *s = *serve(t, s.address, s.pool, b) }); status != nfs3.OK {
		t.Errorf("GETATTR: %v", status)
	}
	untilRefused(t, b, c, root)
	up()
	if got := mnt(t, c, "/"); !bytes.Equal(got, root) {
		t.Errorf("MNT: handle %x, must be %x as before", got, root)
	}
}

// untilRefused calls GETATTR until two MNTs of the proxy were refused: with the second, what was found beside the first is known.
func untilRefused(t *testing.T, b *fake, c *nfs4test.Caller, root []byte) {
	t.Helper()
	refused := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.refused
	}
	for tries := 0; refused() < 2; tries++ {
		if tries == 100_000 {
			t.Fatal("the root was not looked for again")
		}
		if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(root)); status != nfs3.OK || err != nil {
			t.Fatalf("GETATTR: %v, %v", status, err)
		}
	}
}

// TestMountAway: while MOUNT is away, version 3 is served on, and MOUNT is asked again until it is there.
func TestMountAway(t *testing.T) {
	b, s, f := start(t, func(c *proxy.Config) { c.Minor[1] = true })
	c := f.dial(t, "tcp", nil)
	root := mnt(t, c, "/")
	away := func(noMount bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.noMount = noMount
	}
	if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(root)); status != nfs3.OK || err != nil { // so there is a connection to be lost
		t.Fatalf("GETATTR: %v, %v", status, err)
	}
	s.kill()
	away(true)
	if status, _, _ := call3Async(t, c, root, func() { *s = *serve(t, s.address, s.pool, b) }); status != nfs3.OK {
		t.Errorf("GETATTR: %v", status)
	}
	untilRefused(t, b, c, root)
	for tries := 0; f.Status().MountError == ""; tries++ { // the first MNT may have been that of an attempt which the crash cut short
		if tries == 100_000 {
			t.Fatalf("status: %+v", f.Status())
		}
		if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(root)); status != nfs3.OK || err != nil {
			t.Fatalf("GETATTR: %v, %v", status, err)
		}
	}
	if st := f.Status(); st.RootError != "" || !slices.Equal(st.Versions, []string{"3", "4.1"}) {
		t.Errorf("status: %+v", st)
	}
	away(false)
	for tries := 0; f.Status().MountError != ""; tries++ {
		if tries == 100_000 {
			t.Fatal("MOUNT was not asked again")
		}
		if got := mnt(t, c, "/"); !bytes.Equal(got, root) {
			t.Fatalf("MNT: handle %x, must be %x", got, root)
		}
	}
}

// TestNoVersion3: a backend that says that it has no version 3 is asked for no root of it, though it may have MOUNT.
func TestNoVersion3(t *testing.T) {
	b := newFake(t)
	b.no3, b.shut = true, true
	s := serve(t, "127.0.9.1:0", pool(t), b)
	t.Cleanup(s.stop)
	f := newFront(t, "tcp", s.address, func(c *proxy.Config) { c.Minor[1] = true })
	c := f.dial(t, "tcp", nil)
	session, err := nfs4test.NewSession(t.Context(), c, 1, "owner", 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Next(t.Context(), 0, op(schema.OpPutRootFH), op(schema.OpLookup, "a"), op(schema.OpLookupP)); err != nil {
		t.Fatal(err)
	}
	var refused *oncrpc.StatusError
	if _, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(nil)); !errors.As(err, &refused) || refused.Status.Accept != oncrpc.ProgMismatch {
		t.Errorf("GETATTR: %v, must be PROG_MISMATCH", err)
	}
	if st := f.Status(); st.RootError != "" || !slices.Equal(st.Versions, []string{"4.1"}) {
		t.Errorf("status: %+v", st)
	}
}

// TestNoDirectory: what is no directory does not become the root.
func TestNoDirectory(t *testing.T) {
	b := newFake(t)
	b.file4 = true
	s := serve(t, "127.0.9.1:0", pool(t), b)
	t.Cleanup(s.stop)
	f := newFront(t, "tcp", s.address, func(c *proxy.Config) { c.Minor[1] = true })
	mnt(t, f.dial(t, "tcp", nil), "/")
	if st := f.Status(); st.RootError == "" || !slices.Equal(st.Versions, []string{"3"}) {
		t.Errorf("status: %+v", st)
	}
}

// TestRootChanges: after the backend was away its root has another handle, which is found.
func TestRootChanges(t *testing.T) {
	b, s, f := start(t, func(c *proxy.Config) { c.Minor[1] = true })
	c := f.dial(t, "tcp", nil)
	before := mnt(t, c, "/")
	if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(before)); status != nfs3.OK || err != nil { // so there is a connection to be lost
		t.Fatalf("GETATTR: %v, %v", status, err)
	}
	s.kill()
	b.mu.Lock()
	b.root = []byte("the handle that it has now")
	b.mu.Unlock()
	if status, _, _ := call3Async(t, c, before, func() { *s = *serve(t, s.address, s.pool, b) }); status != nfs3.OK {
		t.Errorf("GETATTR: %v", status)
	}
	want := f.signer.Append(nil, b.root, sign.Max3)
	for tries := 0; !bytes.Equal(mnt(t, c, "/"), want); tries++ { // it is looked for beside
		if tries == 100_000 {
			t.Fatal("the root was not found again")
		}
	}
	session, err := nfs4test.NewSession(t.Context(), c, 1, "owner", 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	res, err := session.Next(t.Context(), 0, op(schema.OpPutRootFH), op(schema.OpGetFH))
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Handle(t, 2); !bytes.Equal(got, want) {
		t.Errorf("GETFH: %x, want %x", got, want)
	}
}

// call3Async calls GETATTR, and does something while it waits.
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

// TestClientGone: a client goes with its calls in flight, and all memory is given back, whether the backend answers or not.
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

// TestOverload: when more waits for the backend than may, the client's connection is closed, and the client has to send its calls again.
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
