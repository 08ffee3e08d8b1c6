// Package client is a small NFS version 3 client over any oncrpc.Requester: TCP, or RPC-over-RDMA.
//
// Its methods are the procedures of RFC 1813, plus walks of paths and pipelined transfers, with
// COMMIT and checks of verifiers. It caches nothing. An [Op] is a call that is encoded once and
// sent many times, without allocation; transfers and load generators use it.
//
// A status other than NFS3_OK is an error that names the procedure; errors.Is finds the nfs3.Status
// in it, and fs.ErrNotExist and the like. After NFS3ERR_JUKEBOX a call is repeated until its
// context ends. When a context ends, the call is abandoned; the server may have executed it.
//
// A [Reconnector] as the Requester survives a restart of the server, transfers included.
package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
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
	// Window bounds the outstanding READs or WRITEs of a transfer; 0 means DefaultWindow.
	Window int
}

// Client calls one server. Its methods may be called concurrently.
type Client struct {
	rq, mount oncrpc.Requester
	pool      *bufpool.Pool
	cred      oncrpc.Auth
	window    int

	// The sizes of the last FSINFO; 0 before the first.
	rtmax, wtmax, dtpref atomic.Uint32
}

// New makes a client.
func New(cfg Config) *Client {
	c := &Client{rq: cfg.Requester, mount: cfg.Mount, pool: cfg.Pool, cred: cfg.Cred, window: cfg.Window}
	if c.mount == nil {
		c.mount = c.rq
	}
	if c.window <= 0 {
		c.window = DefaultWindow
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

type encoder interface{ Encode(e *xdr.Encoder) }

type decoder interface{ Decode(d *xdr.Decoder) }

// void are no arguments, or no results.
type void struct{}

func (void) Encode(*xdr.Encoder) {}
func (void) Decode(*xdr.Decoder) {}

// fixedArgs bounds the arguments of all procedures without names and data: two handles of RENAME,
// or a handle and sattr3 of CREATE.
const fixedArgs = 256

// newRequest makes a sealed NFS request with its reply plan. names is the number of bytes of inline
// names and paths in args.
func (c *Client) newRequest(procedure uint32, args encoder, names int) (*oncrpc.Request, error) {
	size := oncrpc.MinCallLen + xdr.Round(len(c.cred.Body)) + fixedArgs + names
	r, e, err := oncrpc.NewRequest(c.pool, nfs3.Program, nfs3.Version, procedure, c.cred, size)
	if err != nil {
		return nil, err
	}
	args.Encode(e)
	if err := r.Seal(); err != nil {
		r.Free()
		return nil, err
	}
	var d xdr.Decoder
	d.Reset(r.Call.Stream, r.Call.Items)
	d.Skip(r.ArgsAt)
	r.Eligible, err = binding.For(r.Program, r.Version).Plan(&r.Plan, r.Eligible[:0], procedure, &d)
	if err != nil {
		r.Free()
		return nil, fmt.Errorf("arguments: %w", err)
	}
	r.Plan.MaxReply = replyLen(r.Plan.MaxReply)
	return r, nil
}

// replyLen is the longest reply with results of n bytes: an error status may be longer than short
// results. The verifier is empty for AUTH_NONE and AUTH_SYS.
func replyLen(n int) int { return oncrpc.MinReplyLen + max(n, 8) }

// do makes an NFS call and decodes its results into res. They stay valid until the caller frees the
// request.
func (c *Client) do(ctx context.Context, procedure uint32, args encoder, names int, res decoder) (*oncrpc.Request, error) {
	for p := (patience{}); ; {
		r, err := c.newRequest(procedure, args, names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", nfs3.ProcedureName(procedure), err)
		}
		if err := finish(oncrpc.Do(ctx, c.rq, r), r, res); err != nil {
			r.Free()
			return nil, fmt.Errorf("%s: %w", nfs3.ProcedureName(procedure), err)
		}
		if d, _ := r.Results(); procedure == nfs3.ProcNull || !p.again(ctx, nfs3.Status(d.Uint32())) {
			return r, nil
		}
		r.Free()
	}
}

// patience spaces the calls that are repeated because the server answers NFS3ERR_JUKEBOX.
type patience struct{ delay time.Duration }

// again waits before a repetition, 100 ms at first and at most 5 s. It reports false for another
// error, and when ctx ends.
func (p *patience) again(ctx context.Context, err error) bool {
	if !errors.Is(err, nfs3.ErrJukebox) {
		return false
	}
	p.delay = min(max(2*p.delay, 100*time.Millisecond), 5*time.Second)
	select {
	case <-time.After(p.delay):
		return true
	case <-ctx.Done():
		return false
	}
}

// finish decodes the results of a request that ended with err.
func finish(err error, r *oncrpc.Request, res decoder) error {
	if err != nil {
		return err
	}
	d, err := r.Results()
	if err != nil {
		return err
	}
	res.Decode(d)
	return d.Err()
}

// failed returns the error of a status, nil for NFS3_OK.
func failed(procedure uint32, s nfs3.Status) error {
	if s == nfs3.OK {
		return nil
	}
	return fmt.Errorf("%s: %w", nfs3.ProcedureName(procedure), s)
}

// Null calls the procedure that does nothing.
func (c *Client) Null(ctx context.Context) error {
	r, err := c.do(ctx, nfs3.ProcNull, void{}, 0, void{})
	if err != nil {
		return err
	}
	r.Free()
	return nil
}
