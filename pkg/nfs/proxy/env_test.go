package proxy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/xdr"
)

type raw = nfs4test.Raw

var (
	fields = nfs4test.Fields
	op     = nfs4test.Op
)

// fake is a backend whose answers, and their times, the test controls.
type fake struct {
	t    testing.TB
	held chan *oncrpc.Call

	mu      sync.Mutex
	root    []byte                  // of both versions
	root3   []byte                  // of version 3, if different
	shut    bool                    // MNT is refused
	no3     bool                    // NFS version 3 is missing
	noMount bool                    // MOUNT is missing
	file4   bool                    // the root of version 4 is a file
	refused int                     // number of refused MNTs
	hold    func(*oncrpc.Call) bool // selects calls to hold instead of answering
	xids    map[uint32]int          // number of WRITEs by XID
}

const (
	rootID  = 77
	machine = "a client of the tests"
)

func newFake(t testing.TB) *fake {
	return &fake{t: t, root: []byte("the backend's root handle"), held: make(chan *oncrpc.Call, 1000), xids: map[uint32]int{}}
}

// holding sets the calls to hold; nil holds none.
func (f *fake) holding(hold func(*oncrpc.Call) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = hold
}

// reads and writes select calls of version 3.
func reads(c *oncrpc.Call) bool  { return c.Version == 3 && c.Procedure == nfs3.ProcRead }
func writes(c *oncrpc.Call) bool { return c.Version == 3 && c.Procedure == nfs3.ProcWrite }

// compounds selects clients' COMPOUNDs that begin with SEQUENCE.
func compounds(c *oncrpc.Call) bool {
	if c.Version != 4 || c.Procedure != 1 || !bytes.Contains(c.Cred.Body, []byte(machine)) {
		return false // the gateway's own
	}
	var w schema.Walker
	return w.Args(schema.Proc{Program: nfs3.Program, Version: 4, Procedure: 1}, c.Args()) == nil && len(w.Ops) > 0 && w.Ops[0].Code == schema.OpSequence
}

func (f *fake) ServeRPC(c *oncrpc.Call) {
	f.mu.Lock()
	hold := f.hold != nil && f.hold(c)
	if writes(c) {
		f.xids[c.XID]++
	}
	f.mu.Unlock()
	if hold {
		f.held <- c
		return
	}
	f.answer(c)
}

// answer answers a call, held or not.
func (f *fake) answer(c *oncrpc.Call) {
	mounts := c.Program == nfs3.MountProgram && c.Procedure == nfs3.MountProcMnt
	f.mu.Lock()
	root, root3, shut, noMount, no3 := f.root, f.root3, f.shut, f.noMount, f.no3
	kind4 := 2
	if f.file4 {
		kind4 = 1
	}
	if mounts && (shut || noMount) {
		f.refused++
	}
	f.mu.Unlock()
	if root3 == nil {
		root3 = root
	}
	dir := fields(2, 0o755, 2, 0, 0, uint64(4096), uint64(4096), 0, 0, uint64(1), uint64(rootID), 0, 0, 0, 0, 0, 0)
	var results raw
	switch {
	case c.Program == nfs3.MountProgram && noMount:
		c.ReplyAccept(oncrpc.ProgUnavail)
		return
	case c.Program == nfs3.Program && c.Version == 3 && no3:
		c.ReplyMismatch(4, 4)
		return
	case c.Procedure == 0:
	case mounts && shut:
		results = fields(int(nfs3.ErrAcces))
	case mounts:
		results = fields(0, root3, 1, oncrpc.AuthSys)
	case c.Program == nfs3.Program && c.Version == 3:
		switch c.Procedure {
		case nfs3.ProcGetAttr:
			results = fields(0, dir)
		case nfs3.ProcFSInfo:
			results = fields(0, 0, 1<<20, 1<<20, 4096, 1<<20, 1<<20, 4096, 65536, uint64(1<<40), 0, 1, 0x1b)
		case nfs3.ProcRead:
			results = fields(0, 0, 4, true, "data")
		case nfs3.ProcWrite:
			results = fields(0, 0, 0, 4, 2, uint64(1))
		default:
			results = fields(int(nfs3.ErrNotSupp), 0, 0, 0, 0)
		}
	case c.Program == nfs3.Program && c.Version == 4:
		results = f.compound(c, root, kind4)
	default:
		c.ReplyAccept(oncrpc.ProgUnavail)
		return
	}
	e, err := c.BeginReply(oncrpc.MinReplyLen + len(results))
	if err != nil {
		f.t.Error(err)
		c.Drop()
		return
	}
	copy(e.Grow(len(results)), results)
	c.EndReply()
	c.Respond()
}

// compound returns successful results of a COMPOUND. kind is the nfs_ftype4 of the root.
func (f *fake) compound(c *oncrpc.Call, root []byte, kind int) raw {
	var w schema.Walker
	d := c.Args()
	if err := w.Args(schema.Proc{Program: nfs3.Program, Version: 4, Procedure: 1}, d); err != nil {
		f.t.Errorf("the backend gets a COMPOUND that it cannot read: %v", err)
	}
	all := fields(0, "", len(w.Ops))
	for _, o := range w.Ops {
		code := int(o.Code)
		switch code {
		case schema.OpExchangeID:
			all = append(all, op(code, 0, uint64(1), 1, 0x10000, 0, uint64(0), "owner", "scope", 0)...)
		case schema.OpCreateSession:
			all = append(all, op(code, 0, raw("session of fakes"), 1, 2, nfs4test.Channel(64<<10, 64, 8), nfs4test.Channel(4096, 4, 2))...)
		case schema.OpSequence:
			d := c.Args()
			d.Skip(o.Pos - c.ArgsAt + 4)
			all = append(all, op(code, 0, raw(d.Fixed(16)), d.Uint32(), d.Uint32(), 7, 7, 0)...)
		case schema.OpGetFH:
			all = append(all, op(code, 0, root)...)
		case schema.OpGetAttr:
			all = append(all, op(code, 0, nfs4test.Attrs([]uint32{1, schema.AttrFileID}, kind, uint64(rootID)))...)
		default:
			all = append(all, op(code, 0)...)
		}
	}
	return all
}

// drop drops all held calls.
func (f *fake) drop() {
	f.holding(nil)
	for {
		select {
		case c := <-f.held:
			c.Supersede()
		default:
			return
		}
	}
}

// pool returns a pool whose memory must be returned by the end of the test.
func pool(t testing.TB) *bufpool.Pool {
	p := bufpool.New(0)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// kill ends a service at once, like a crash.
func (s *service) kill() {
	s.t.Helper()
	if err := s.srv.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
	<-s.done
}

// front is a proxy on both networks.
type front struct {
	*proxy.Server
	signer    *sign.Signer
	tcp, rdma string // addresses
	spoken    *spoken
}

// newFront starts a proxy for the backend at an address.
func newFront(t testing.TB, network, backend string, change func(*proxy.Config)) *front {
	t.Helper()
	at := netip.MustParseAddrPort(backend)
	cfg := proxy.Config{
		UID: []byte("01234567"), Network: network, Server: at.Addr().String(), Port: int(at.Port()), MountPort: int(at.Port()), Path: "/",
		V3: true, Access: []access.Rule{{Networks: everyone, Squash: access.SquashNone}}, Pool: pool(t),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	provider, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if network == "rdma" {
		cfg.Provider, cfg.MountPort = provider, 0
	}
	if change != nil {
		change(&cfg)
	}
	key := make([]byte, 32)
	rand.Read(key)
	if cfg.Signer, err = sign.New([][]byte{key}, cfg.UID, sign.Required); err != nil {
		t.Fatal(err)
	}
	f := &front{signer: cfg.Signer}
	if f.Server, err = proxy.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	s := serve(t, "127.0.0.1:0", cfg.Pool, f)
	t.Cleanup(s.stop)
	f.spoken = &spoken{offered: cfg.Extensions, forms: cfg.RFC5666}
	f.tcp, f.rdma = s.address, serveRDMA(t, cfg.Pool, f, f.spoken)
	return f
}

// spoken records the RPC-over-RDMA connections of a server. With extensions, the server offers
// version 2 beside version 1.
type spoken struct {
	rpcrdma.NoObserver
	offered rpcrdma.Extensions
	forms   rpcrdma.RFC5666

	mu    sync.Mutex
	conns []*rpcrdma.Conn
}

func (s *spoken) ConnOpened(c *rpcrdma.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
}

// only checks that there are connections, all of the version.
func (s *spoken) only(t testing.TB, version int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.conns {
		switch v := c.Negotiated().Version; v {
		case version:
			n++
		case 0: // nothing received yet
		default:
			t.Errorf("a connection has version %d, must have %d", v, version)
		}
	}
	if n == 0 {
		t.Errorf("no connection has version %d", version)
	}
}

// serveRDMA serves over software iWARP and returns the address.
func serveRDMA(t testing.TB, p *bufpool.Pool, h oncrpc.Handler, s *spoken) string {
	t.Helper()
	provider, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	domain, err := provider.NewDomain()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = domain.Close() })
	if err := domain.Register(p); err != nil {
		t.Fatal(err)
	}
	l, err := provider.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := rpcrdma.Config{Pool: p, Domain: domain, Handler: h, Bindings: binding.For, Extensions: s.offered, RFC5666: s.forms, Observer: s}
	if s.offered != 0 {
		cfg.Versions = []int{1, 2}
	}
	srv, err := rpcrdma.NewServer(cfg, l)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		<-done
	})
	return l.Addr().String()
}

// dial connects a client over "tcp" or "rdma". back handles callbacks; it may be nil.
func (f *front) dial(t testing.TB, network string, back oncrpc.Handler) *nfs4test.Caller {
	t.Helper()
	c := &nfs4test.Caller{Pool: pool(t)}
	var err error
	if c.Cred, err = (&oncrpc.AuthSysParms{Machine: []byte(machine), UID: 0, GID: 0}).Auth(); err != nil {
		t.Fatal(err)
	}
	if network == "tcp" {
		conn, err := oncrpc.Dial(t.Context(), f.tcp, oncrpc.Config{Pool: c.Pool, Handler: back, Bindings: binding.For})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(); conn.Wait() })
		c.Requester = conn
		return c
	}
	provider, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := rpcrdma.Dial(t.Context(), provider, f.rdma, rpcrdma.Config{Pool: c.Pool, Handler: back, Bindings: binding.For})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); <-conn.Done() })
	c.Requester = conn
	return c
}

// call3 calls a procedure of version 3 and returns the results after the status.
func call3(t testing.TB, c *nfs4test.Caller, procedure uint32, args raw) (nfs3.Status, []byte, error) {
	t.Helper()
	b, err := c.Call(t.Context(), nfs3.Program, 3, procedure, args)
	if err != nil {
		return 0, nil, err
	}
	return nfs3.Status(binary.BigEndian.Uint32(b)), b[4:], nil
}

// mnt returns the handle of a directory.
func mnt(t testing.TB, c *nfs4test.Caller, path string) []byte {
	t.Helper()
	b, err := c.Call(t.Context(), nfs3.MountProgram, 3, nfs3.MountProcMnt, fields(path))
	if err != nil {
		t.Fatal(err)
	}
	var d xdr.Decoder
	d.ResetBytes(b)
	status, handle := d.Uint32(), d.Opaque(nfs3.HandleLen)
	if status != 0 || d.Err() != nil {
		t.Fatalf("MNT of %q: status %d, %v", path, status, d.Err())
	}
	return handle
}

// Arguments of calls of version 3.
func getAttr3(handle []byte) raw            { return fields(handle) }
func read3(handle []byte) raw               { return fields(handle, uint64(0), 4) }
func write3(handle []byte, data string) raw { return fields(handle, uint64(0), len(data), 2, data) }

// start starts a fake backend and a proxy for it.
func start(t testing.TB, change func(*proxy.Config)) (*fake, *service, *front) {
	t.Helper()
	f := newFake(t)
	s := serve(t, "127.0.9.1:0", pool(t), f)
	t.Cleanup(func() { f.drop(); s.stop() })
	return f, s, newFront(t, "tcp", s.address, change)
}

// volume returns a server of a new directory, and the directory.
func volume(t testing.TB) (*server.Server, string) {
	t.Helper()
	dir := t.TempDir()
	key := make([]byte, 32)
	rand.Read(key)
	cfg := server.Config{
		Root: dir, Name: "data", Key: key, Access: []access.Rule{{Networks: everyone, Squash: access.SquashNone}},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	cfg.ReplyCache.PerClient = 16 // fills soon: memory use is then constant
	v, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v, dir
}

// asClient returns a version 3 client for a caller.
func asClient(c *nfs4test.Caller) *client.Client {
	return client.New(client.Config{Requester: c.Requester, Pool: c.Pool, Cred: c.Cred})
}
