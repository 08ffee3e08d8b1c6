package proxy_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
)

// absent returns an address without a listener. No connection uses it as its own, so nobody takes
// the port meanwhile.
func absent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.9.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nobody has connected
	return l.Addr().String()
}

// mounts starts n MNTs that must not be answered. wait waits for their end.
func mounts(t *testing.T, c *nfs4test.Caller, n int) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if b, err := c.Call(t.Context(), nfs3.MountProgram, 3, nfs3.MountProcMnt, fields("/")); err == nil {
				t.Errorf("MNT was answered: %x", b)
			}
		})
	}
	return wg.Wait
}

// TestWaitClientGone checks that calls which wait for the root end with their client's connection.
func TestWaitClientGone(t *testing.T) {
	for _, network := range []string{"tcp", "rdma"} {
		t.Run(network, func(t *testing.T) {
			const n = 20
			var p *bufpool.Pool
			f := newFront(t, "tcp", absent(t), func(c *proxy.Config) { p = c.Pool })
			before := p.Stats().InUse
			for range 3 {
				c := f.dial(t, network, nil)
				// gets credits
				if _, err := c.Call(t.Context(), nfs3.MountProgram, 3, 0, nil); err != nil {
					t.Fatal(err)
				}
				wait := mounts(t, c, n)
				for f.Status().WaitBytes < n<<10 {
					time.Sleep(100 * time.Microsecond)
				}
				_ = c.Requester.Close()
				wait()
				for f.Status().WaitBytes > 0 || p.Stats().InUse > before {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
}

// TestWaitOverload checks that a client is disconnected when too many bytes wait for the root.
func TestWaitOverload(t *testing.T) {
	const limit = 100 << 10
	f := newFront(t, "tcp", absent(t), func(c *proxy.Config) { c.WaitLimit = limit })
	mounts(t, f.dial(t, "tcp", nil), limit>>10)()
	if st := f.Status(); st.Overloads == 0 || st.WaitBytes > limit {
		t.Errorf("status: %+v", st)
	}
}

// TestWaitSoftTimeout checks that a client whose call waits for the root is asked to try again. MNT
// has no such status: its client is disconnected.
func TestWaitSoftTimeout(t *testing.T) {
	f := newFront(t, "tcp", absent(t), func(c *proxy.Config) { c.SoftTimeout, c.Minor[0], c.Minor[1] = 50*time.Millisecond, true, true })
	for _, network := range []string{"tcp", "rdma"} {
		t.Run(network, func(t *testing.T) {
			c := f.dial(t, network, nil)
			session := nfs4test.Session{Caller: c, Minor: 1, ID: make([]byte, 16), Slots: make([]uint32, 1)}
			for _, tt := range []struct {
				name  string
				first uint32
				call  func() (*nfs4test.Results, error)
			}{
				{"in a session", schema.OpSequence, func() (*nfs4test.Results, error) {
					return session.Next(t.Context(), 0, op(schema.OpPutRootFH), op(schema.OpGetFH))
				}},
				{"without a session", schema.OpPutRootFH, func() (*nfs4test.Results, error) {
					return c.Compound(t.Context(), 0, op(schema.OpPutRootFH), op(schema.OpGetFH))
				}},
			} {
				res, err := tt.call()
				if err != nil {
					t.Fatalf("%s: %v", tt.name, err)
				}
				if res.Status != 10008 || len(res.Ops) != 1 || res.Ops[0].Code != tt.first {
					t.Errorf("%s: status %d, %d results, want DELAY of operation %d", tt.name, res.Status, len(res.Ops), tt.first)
				}
			}
			if status, _, err := call3(t, c, nfs3.ProcReaddir, fields([]byte("a handle"), uint64(0), uint64(0), 4096)); status != nfs3.ErrJukebox || err != nil {
				t.Errorf("READDIR: %v, %v, want JUKEBOX", status, err)
			}
			mounts(t, c, 3)()
			// the client may see the end of the connection before the proxy
			for f.Status().WaitBytes > 0 {
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	if st := f.Status(); st.Delayed != 6 {
		t.Errorf("status: %+v", st)
	}
}
