package proxy_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// TestOneRoot checks that calls wait only for the root that they need, when the backend reports the
// root of version 4 but not of version 3.
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
			t.Fatal("unknown root was reported")
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

// TestRootStays checks that a known root stays, and is protected from LOOKUPP, while a recovered
// backend does not report it.
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

// untilRefused calls GETATTR until the proxy's second refused MNT: the results of the first attempt
// are then known.
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

// TestNoVersion3 checks that a backend without version 3 is not asked for its root, even if it has
// MOUNT.
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

// TestNoDirectory checks that only a directory becomes the root.
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

// TestRootChanges checks that the new handle of the root is found after the backend recovers.
func TestRootChanges(t *testing.T) {
	b, s, f := start(t, func(c *proxy.Config) { c.Minor[1] = true })
	c := f.dial(t, "tcp", nil)
	before := mnt(t, c, "/")
	// makes a connection that can be lost
	if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(before)); status != nfs3.OK || err != nil {
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
	// the search runs in the background
	for tries := 0; !bytes.Equal(mnt(t, c, "/"), want); tries++ {
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
