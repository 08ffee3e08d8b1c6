// Package proxy is an NFS server whose files are on another NFS server. Its [Server] is an
// [oncrpc.Handler] for any transport. It adds RPC-over-RDMA, access rules and signed handles to any
// server of NFS version 3, 4.0, 4.1 and 4.2, over TCP or RPC-over-RDMA.
//
// It keeps no NFS state. Each client connection has one backend connection, and calls keep their
// XIDs, sessions, state ids and verifiers. The package joins two others: pkg/nfs/proxy/rewrite
// edits messages and does no I/O; pkg/nfs/proxy/upstream holds the connections and restores them
// after failures.
//
//	ServeRPC → rewrite.Call.Args → upstream.Link → rewrite.Call.Results → Respond
//
// The backend's own calls, the callbacks of NFSv4.1, take the reverse way over the same two
// connections.
//
// A call that waits for the backend holds only its memory: no goroutine, no stack.
package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Config configures a Server.
type Config struct {
	// UID identifies the export for ever, across restarts and replicas: at least 8 bytes.
	UID []byte

	// Network leads to the backend: "tcp" or "rdma".
	Network string
	// Server and Port are the address of the backend's NFS service. MountPort is the TCP port of
	// its MOUNT service, for version 3. If it is 0, the backend's rpcbind is asked; on RDMA the NFS
	// port is tried first.
	Server          string
	Port, MountPort int
	// Path is the backend's directory that clients see as "/".
	Path string
	// Within is Path or a directory above it. Version 3 then mounts Within and looks up the names
	// below it, so that no symbolic link leads out of it. If it is empty, the backend's MOUNT
	// follows symbolic links in Path.
	Within string
	// Provider is required for network "rdma".
	Provider rdma.Provider
	// Extensions are offered to a backend on network "rdma" in RPC-over-RDMA version 2. Version 2
	// itself is always offered, beside version 1.
	Extensions rpcrdma.Extensions
	// Dialect is that of version 2; nil means wire.V2RoundTrip.
	Dialect wire.Dialect
	// RFC5666 are forms of RPC-over-RDMA version 1 for a backend on network "rdma". ReadRead needs
	// Minor to be empty: it may have a call executed twice.
	RFC5666 rpcrdma.RFC5666

	// V3 and Minor are the offered versions: 3, and 4.0 to 4.2.
	V3    bool
	Minor [3]bool
	// Signer signs file handles.
	Signer *sign.Signer
	// GSS permits RPCSEC_GSS; see [rewrite.Export].
	GSS bool
	// SoftTimeout is the time after which the client of an unanswered call is asked to try again; 0
	// means never.
	SoftTimeout time.Duration
	// MountPatience is the time for which a MNT waits for the MOUNT service of a reachable backend.
	// 0 means 10 s.
	MountPatience time.Duration
	// Access holds the access rules; see SetAccess.
	Access []access.Rule

	// Pool provides all memory. On network "rdma" each connection registers it anew.
	Pool *bufpool.Pool
	// WaitLimit bounds the bytes of calls that wait for an unreachable backend, and, separately,
	// those of unanswered calls of disconnected clients. 0 means 64 MiB.
	WaitLimit int64
	// Logger may be nil.
	Logger *slog.Logger
}

// Server is a proxy for one export. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	export  rewrite.Export
	rules   atomic.Pointer[access.Rules]
	backend *upstream.Backend
	roots   rootFinder
	stats   stats

	waiters rootWaiters

	running   sync.WaitGroup // this package's goroutines
	closed    chan struct{}
	closeOnce sync.Once
}

// New returns a Server. The backend need not be up: calls wait for it.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	cfg.MountPatience = cmp.Or(cfg.MountPatience, 10*time.Second)
	switch {
	case cfg.Pool == nil:
		return nil, errors.New("nfs proxy: Pool is required")
	case cfg.Signer == nil:
		return nil, errors.New("nfs proxy: Signer is required")
	case len(cfg.UID) < 8:
		return nil, fmt.Errorf("nfs proxy: UID has %d bytes, want at least 8", len(cfg.UID))
	case cfg.Network != "tcp" && cfg.Network != "rdma":
		return nil, fmt.Errorf(`nfs proxy: Network is %q, want "tcp" or "rdma"`, cfg.Network)
	case cfg.Network == "rdma" && cfg.Provider == nil:
		return nil, errors.New("nfs proxy: Provider is required for network rdma")
	case cfg.RFC5666&rpcrdma.ReadRead != 0 && cfg.Minor != [3]bool{}:
		return nil, errors.New("nfs proxy: RFC5666 has ReadRead, want no Minor")
	case !cfg.V3 && cfg.Minor == [3]bool{}:
		return nil, errors.New("nfs proxy: V3 or Minor is required")
	case len(cfg.Path) > nfs3.MaxMountPath || len(cfg.Path) == 0 || cfg.Path[0] != '/':
		return nil, fmt.Errorf("nfs proxy: Path is %q, want an absolute path of at most %d bytes", cfg.Path, nfs3.MaxMountPath)
	}
	if _, ok := namesBelow(cfg.Within, cfg.Path); !ok {
		return nil, fmt.Errorf("nfs proxy: Within is %q, want Path, which is %q, or a directory above it", cfg.Within, cfg.Path)
	}
	s := &Server{cfg: cfg, log: cfg.Logger, closed: make(chan struct{})}
	s.export.UID, s.export.Signer = cfg.UID, cfg.Signer
	s.export.V3, s.export.Minor, s.export.GSS = cfg.V3, cfg.Minor, cfg.GSS
	if err := s.SetAccess(cfg.Access); err != nil {
		return nil, err
	}
	s.roots.init(s)
	s.waiters.s = s
	var err error
	if s.backend, err = s.newUpstream(); err != nil {
		return nil, fmt.Errorf("nfs proxy: %w", err)
	}
	s.running.Go(s.roots.run)
	return s, nil
}

// SetAccess replaces the access rules for all later calls. The first rule that matches a client's
// address decides. A client without a rule is refused with AUTH_TOOWEAK.
func (s *Server) SetAccess(rules []access.Rule) error {
	rs, err := access.NewRules(rules)
	if err != nil {
		return fmt.Errorf("nfs proxy: %w", err)
	}
	s.rules.Store(rs)
	return nil
}

// Close stops the server and drops calls in flight. Shut down the transports first.
func (s *Server) Close() error {
	s.closeOnce.Do(func() { close(s.closed) })
	s.roots.cancel()
	s.waiters.dropAll()
	s.backend.Close()
	s.running.Wait()
	return nil
}

// ServeRPC implements [oncrpc.Handler].
func (s *Server) ServeRPC(c *oncrpc.Call) {
	f, ok := c.Scratch.(*forwardedCall)
	if !ok {
		f = newForwardedCall(s, c)
		c.Scratch = f
	}
	if f.client == nil || f.client.conn != c.Conn {
		f.client = s.clientOf(c.Conn)
	}
	if !f.client.allowed() {
		c.ReplyDenied(oncrpc.AuthTooWeak)
		return
	}
	f.start()
}
