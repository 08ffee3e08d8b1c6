// Package client is a small NFS client over any oncrpc.Requester: TCP, or RPC-over-RDMA.
//
// Its methods are the operations of a [Protocol], plus walks of paths and pipelined transfers, with
// COMMIT and checks of verifiers. It caches nothing. An [Op] is a call that is encoded once and
// sent many times, without allocation; transfers and load generators use it.
//
// When a context ends, the call is abandoned; the server may have executed it.
//
// A [Reconnector] as the Requester survives a restart of the server, transfers included:
//
//   - READ, WRITE, COMMIT and COPY go on, and uncommitted data that the server lost are written
//     again.
//   - A call on names that was not answered is sent again. It may fail although the first one
//     succeeded; see [Reconnector].
//   - With version 4.2 the client recovers its session and reclaims its open files. With a session
//     that survived, no call is executed twice. A server that has lost its state grants other opens
//     only after its grace period; see Config.OnDelay.
//   - Handles must survive the restart. NFS3ERR_STALE and NFS4ERR_STALE end a call.
//   - After ReconnectConfig.Patience without an answer, and for a call that seems to end each
//     connection, the error is that of the connection.
package client

import (
	"fmt"
	"os"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
)

// DefaultWindow is the default of Config.Window.
const DefaultWindow = 16

// Config configures a Client.
type Config struct {
	// Requester sends the NFS calls: a connection, or a Reconnector. The client does not close it.
	Requester oncrpc.Requester
	// Mount sends the MOUNT calls; nil means Requester.
	Mount oncrpc.Requester
	// Pool has the memory of calls and data. Requester must be able to send from it: for RDMA, a
	// pool attached to its domain.
	Pool *bufpool.Pool
	// Cred is the credential of all calls; see ProcessCred. The zero value is AUTH_NONE.
	Cred oncrpc.Auth
	// Version is the version to speak; see Best.
	Version Version
	// Window bounds the outstanding READs or WRITEs of a transfer; 0 means DefaultWindow.
	Window int
	// OnDelay, if set, is called before a call is repeated because the server asks for it. status
	// is NFS3ERR_JUKEBOX, NFS4ERR_DELAY or NFS4ERR_GRACE, waited the time since the call's first
	// such answer. OnDelay must not block. It may be called concurrently.
	OnDelay func(status error, waited time.Duration)
}

// Client calls one server. Its methods may be called concurrently.
type Client struct {
	Protocol
	pool   *bufpool.Pool
	window int
}

// New makes a client. It makes no call.
func New(cfg Config) *Client {
	c := &Client{pool: cfg.Pool, window: cfg.Window}
	if c.window <= 0 {
		c.window = DefaultWindow
	}
	if cfg.Version == V42 {
		c.Protocol = newV4(cfg)
	} else {
		c.Protocol = newV3(cfg)
	}
	return c
}

// ProcessCred returns the AUTH_SYS credential of this process: its effective user and group, and
// its first 16 supplementary groups.
func ProcessCred() (oncrpc.Auth, error) {
	p := oncrpc.AuthSysParms{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if host, err := os.Hostname(); err == nil {
		p.Machine = []byte(host[:min(len(host), oncrpc.MaxMachineName)])
	}
	groups, err := os.Getgroups()
	if err != nil {
		return oncrpc.Auth{}, fmt.Errorf("supplementary groups: %w", err)
	}
	for _, g := range groups[:min(len(groups), oncrpc.MaxGIDs)] {
		p.GIDs = append(p.GIDs, uint32(g))
	}
	return p.Auth()
}

// Pool returns the pool of the client's memory.
func (c *Client) Pool() *bufpool.Pool { return c.pool }
