// Package proxy is an NFS server whose files are behind another NFS server, as an [oncrpc.Handler] for any transport. It puts RPC-over-RDMA, access
// rules and signed handles in front of any server of NFS version 3, 4.0, 4.1 and 4.2, on TCP or itself on RPC-over-RDMA.
//
// It keeps no NFS state. A client's connection has one connection to the backend, and calls pass with their XIDs, sessions, state ids and
// verifiers. What has to change on the way is decided by pkg/nfs/proxy/rewrite, which knows nothing but messages; pkg/nfs/proxy/upstream has the connections, which
// come back when the backend does; this package brings both together:
//
//	ServeRPC → rewrite.Call.Args → upstream.Link → rewrite.Call.Results → Respond
//
// The backend's own calls, NFSv4.1's callbacks, go the other way by the same two connections.
//
// A call that waits for the backend holds its memory and nothing else: no goroutine, no stack.
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
)

// Config is what a Server needs.
type Config struct {
	// UID tells the export from all others, now and after every restart, at every replica: at least 8 bytes.
	UID []byte

	// Network is how the backend is reached: "tcp" or "rdma".
	Network string
	// Server and Port are the backend's NFS service. MountPort is the TCP port of its MOUNT service, for version 3; 0 asks its rpcbind, on RDMA after
	// the NFS port was tried.
	Server          string
	Port, MountPort int
	// Path is the directory of the backend that clients see as "/".
	Path string
	// Within is a directory that Path is, or lies below. Version 3 then begins with its mount, and
	// the names from there on are looked up, so that no symbolic link leads out of it. Empty leaves
	// symbolic links in Path to the backend's MOUNT.
	Within string
	// Provider makes the connections of the network "rdma".
	Provider rdma.Provider
	// Extensions are those of RPC-over-RDMA version 2 that are offered to a backend on the network "rdma". Version 2 is offered anyway, beside version 1.
	Extensions rpcrdma.Extensions

	// V3 and Minor are the versions that are offered: 3, and 4.0 to 4.2.
	V3    bool
	Minor [3]bool
	// Signer signs file handles.
	Signer *sign.Signer
	// GSS admits RPCSEC_GSS; see [rewrite.Export].
	GSS bool
	// SoftTimeout is how long a call waits for the backend before its client is told to come again; 0 means for ever.
	SoftTimeout time.Duration
	// MountPatience is how long a MNT waits for the MOUNT service of a backend that has come, and
	// cannot be asked for it yet, before it is refused. 0 means 10 s.
	MountPatience time.Duration
	// Access are the rules of who may do what; see SetAccess.
	Access []access.Rule

	// Pool is where all memory comes from. On the network "rdma" it is registered anew for each connection.
	Pool *bufpool.Pool
	// WaitLimit bounds the bytes of calls that wait for a backend that is away, and those of calls whose client has gone, which the backend has not
	// answered. 0 means 64 MiB.
	WaitLimit int64
	// Logger gets what an administrator should know; nil discards it.
	Logger *slog.Logger
}

// Server is a proxy for one export. Its methods may be called concurrently.
type Server struct {
	cfg     Config
	log     *slog.Logger
	export  rewrite.Export
	rules   atomic.Pointer[access.Rules]
	backend *upstream.Backend
	roots   rootFinder
	stats   stats

	waiters rootWaiters

	running   sync.WaitGroup // of this package's own goroutines
	closed    chan struct{}
	closeOnce sync.Once
}

// New makes a Server. The backend need not be there: calls wait for it.
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

// SetAccess replaces the rules, for all calls that come from now on. The first rule that names a client's address decides; a
// client that none names is refused with AUTH_TOOWEAK.
func (s *Server) SetAccess(rules []access.Rule) error {
	rs, err := access.NewRules(rules)
	if err != nil {
		return fmt.Errorf("nfs proxy: %w", err)
	}
	s.rules.Store(rs)
	return nil
}

// Close ends the server. Calls in flight are dropped; transports are to be shut down before.
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
