package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

type encoder interface{ Encode(e *xdr.Encoder) }

type decoder interface{ Decode(d *xdr.Decoder) }

// void are no arguments, or no results.
type void struct{}

func (void) Encode(*xdr.Encoder) {}
func (void) Decode(*xdr.Decoder) {}

// caller makes the calls of a version.
type caller struct {
	rq      oncrpc.Requester
	pool    *bufpool.Pool
	cred    oncrpc.Auth
	version uint32
	onDelay func(status error, waited time.Duration)
}

func callerOf(cfg Config, version uint32) caller {
	return caller{rq: cfg.Requester, pool: cfg.Pool, cred: cfg.Cred, version: version, onDelay: cfg.OnDelay}
}

// newRequest makes a sealed NFS request with its reply plan. size bounds the arguments without
// items, in bytes.
func (c *caller) newRequest(procedure uint32, args encoder, size int) (*oncrpc.Request, error) {
	size += oncrpc.MinCallLen + xdr.Round(len(c.cred.Body))
	r, e, err := oncrpc.NewRequest(c.pool, nfs3.Program, c.version, procedure, c.cred, size)
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
	r.Eligible, err = binding.Offered(r.Program, r.Version).Plan(&r.Plan, r.Eligible[:0], procedure, &d)
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

// patience spaces the calls that are repeated because the server asks for it.
type patience struct {
	onDelay func(status error, waited time.Duration) // see Config
	began   time.Time
	delay   time.Duration
}

// again waits before a repetition, 100 ms at first and at most 5 s. It reports false for another
// error than NFS3ERR_JUKEBOX, NFS4ERR_DELAY and NFS4ERR_GRACE, and when ctx ends.
func (p *patience) again(ctx context.Context, err error) bool {
	if !errors.Is(err, nfs3.ErrJukebox) && !errors.Is(err, nfs4.ErrDelay) && !errors.Is(err, nfs4.ErrGrace) {
		return false
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	if p.onDelay != nil {
		p.onDelay(err, time.Since(p.began))
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

// checkName rejects names that the server could not decode.
func checkName(procedure uint32, names ...string) error {
	for _, n := range names {
		if len(n) > nfs3.MaxPath {
			return fmt.Errorf("%s: %w: %d bytes", nfs3.ProcedureName(procedure), nfs3.ErrNameTooLong, len(n))
		}
	}
	return nil
}

// linkText copies the target of a SYMLINK into memory that the transport can send from. The caller
// releases it.
func linkText(pool *bufpool.Pool, target string) (*bufpool.Buf, error) {
	if err := checkName(nfs3.ProcSymlink, target); err != nil {
		return nil, err
	}
	b, err := pool.Get(len(target))
	if err != nil {
		return nil, fmt.Errorf("SYMLINK: %w", err)
	}
	copy(b.B, target)
	return b, nil
}
