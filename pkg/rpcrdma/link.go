package rpcrdma

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// link is the part of a connection that both roles stand on: its endpoint and queues, and the
// values that both sides agreed on.
type link struct {
	cfg    *Config
	ep     rdma.Endpoint
	server bool // this side accepted the connection: the peer's calls are the forward direction
	info   oncrpc.Conn
	done   chan struct{}
	err    error // why the connection ended; set before done is closed

	peer                  wire.PrivateData
	gotPrivateData        bool // the peer sent private data
	remotelyInvalidatable bool // the peer can invalidate memory that this side, a client, exposes
	negotiated            atomic.Pointer[negotiated]
	headerLimits          wire.Limits // for headers that come; changed with recvMu held
	maxGather             int
	near                  bool        // the round trip is at most Config.Placement.Near
	callsOpen             atomic.Bool // calls may be sent: at a server, after its first answer
	onOpen                func()
	grouped               bool      // groups of transmissions may come; changed with recvMu held
	zero                  []byte    // zeros to pad messages with, until the end
	rfc5666               *rfc5666  // nil without such forms
	gate                  *sendGate // nil without the working group's dialect of version 2

	// recvMu is held by whoever handles completions or runs the handler: Serve's goroutine, or that
	// of a call that had to wait for memory. It is never taken in Sent.
	recvMu   sync.Mutex
	receives recvCredits
	work     workQueue

	protocolErrors atomic.Uint64 // logged or not
	logMu          sync.Mutex
	lastLog        time.Time
	notLogged      int
	closeReason    atomic.Pointer[error]
}

// errOverrun ends a connection whose messages would take receives that others were promised.
var errOverrun = errors.New("rpcrdma: the peer sent more than its credits allow")

func (l *link) fail(err error) {
	if l.closeReason.CompareAndSwap(nil, &err) {
		_ = l.ep.Close()
	}
}

// protocolError counts an error of the peer. It logs at most one a second.
func (l *link) protocolError(kind ErrorKind, format string, args ...any) {
	l.cfg.Observer.ProtocolError(kind)
	l.protocolErrors.Add(1)
	l.logMu.Lock()
	now := l.cfg.Now()
	if !l.lastLog.IsZero() && now.Sub(l.lastLog) < time.Second {
		l.notLogged++
		l.logMu.Unlock()
		return
	}
	l.lastLog = now
	skipped := l.notLogged
	l.notLogged = 0
	l.logMu.Unlock()
	l.cfg.Logger.Warn("RPC-over-RDMA protocol error", slog.String("peer", l.info.Remote.String()), slog.String("error", kind.String()),
		slog.String("reason", fmt.Sprintf(format, args...)), slog.Int("suppressed", skipped))
}

// openCalls lets calls of the reverse direction be sent. The first answer of the forward direction
// does (RFC 8167 section 4.1).
func (l *link) openCalls() {
	if !l.callsOpen.Load() && !l.callsOpen.Swap(true) {
		l.onOpen()
	}
}

// consume counts the receive of a message. With hold the message keeps the receive's place until it
// is answered.
func (l *link) consume(m *inbound, s *recvBuffer, hold bool) {
	m.held = 0
	if hold {
		m.held = 1
	}
	l.receives.consume(s, hold)
}

// privateData is this side's private data while connecting (RFC 8797).
func (l *link) privateData() wire.PrivateData {
	p := wire.PrivateData{
		RemoteInvalidation: l.cfg.RemoteInvalidation && (l.server || l.remotelyInvalidatable),
		SendSize:           l.cfg.InlineCall, ReceiveSize: l.cfg.InlineReply,
	}
	if l.server {
		p.SendSize, p.ReceiveSize = l.cfg.InlineReply, l.cfg.InlineCall
	}
	return p
}

// receiveSize is the size of receives in bytes where version 2 may be spoken. Peers without
// properties assume its default.
func (l *link) receiveSize() int {
	size := l.privateData().ReceiveSize
	if l.headerLimits.Version2 {
		size = max(size, wire.DefaultReceiveSize)
	}
	return size
}

// invalidatesGroups reports whether XMTRESP may invalidate memory of its request. Both sides offer
// that in private data.
func (l *link) invalidatesGroups(t *negotiated) bool {
	return t.invalidate && l.gotPrivateData && l.peer.RemoteInvalidation
}

// buffer returns a buffer of at least n bytes: b itself if it is large enough.
func (l *link) buffer(b *bufpool.Buf, n int) (*bufpool.Buf, error) {
	if b != nil && cap(b.B) >= n {
		b.B = b.B[:n]
		return b, nil
	}
	nb, err := l.cfg.Pool.Get(n)
	if err != nil {
		return b, err
	}
	if b != nil {
		b.Release()
	}
	return nb, nil
}

func (l *link) binding(program, version uint32) oncrpc.Binding {
	if l.cfg.Bindings == nil {
		return nil
	}
	return l.cfg.Bindings(program, version)
}
