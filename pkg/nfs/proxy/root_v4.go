package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	version4     = 4
	procNull     = 0
	procCompound = 1

	maxCompound = 32 << 10 // of calls and replies
	typeDir     = 2        // nfs_ftype4
	attrType    = 1
	// minorMismatch is NFS4ERR_MINOR_VERS_MISMATCH.
	minorMismatch = 10021
	attrFileID    = 20
)

// compoundClient sends the gateway's own COMPOUNDs, one at a time.
type compoundClient struct {
	rq    oncrpc.Requester
	pool  *bufpool.Pool
	cred  oncrpc.Auth
	minor uint32
	// The session, from minor version 1 on.
	clientID uint64
	session  []byte
	sequence uint32
}

// findV4Minor walks from the backend's root to the export's. From minor version 1 on it uses a
// short-lived session.
func (r *rootFinder) findV4Minor(ctx context.Context, rq oncrpc.Requester, minor uint32, roots *rewrite.Roots) (err error) {
	cred, err := client.ProcessCred()
	if err != nil {
		return err
	}
	c := compoundClient{rq: rq, pool: r.s.cfg.Pool, cred: cred, minor: minor}
	names := pathNames(r.s.cfg.Path)
	var found rewrite.Roots
	if minor > 0 {
		if err := c.createSession(ctx, len(names)+8); err != nil {
			return err
		}
		defer func() {
			if e := c.destroySession(ctx); e != nil && err == nil {
				err = e
			}
		}()
	}
	if err := c.lookupRoot(ctx, names, &found); err != nil {
		return err
	}
	roots.V4, roots.FileID4, roots.Supported4, roots.ExclCreat4 = found.V4, found.FileID4, found.Supported4, found.ExclCreat4
	return nil
}

// call sends a COMPOUND of n operations, which ops encodes, and passes the results after its header
// to read. A failed operation is an error.
func (c *compoundClient) call(ctx context.Context, n int, ops func(*xdr.Encoder), read func(*xdr.Decoder)) error {
	r, e, err := oncrpc.NewRequest(c.pool, nfs3.Program, version4, procCompound, c.cred, maxCompound)
	if err != nil {
		return err
	}
	defer r.Free()
	e.Opaque(nil) // tag
	e.Uint32(c.minor)
	e.Uint32(uint32(n))
	ops(e)
	r.Plan.MaxReply = maxCompound
	if err := oncrpc.Do(ctx, c.rq, r); err != nil {
		return err
	}
	d, err := r.Results()
	if err != nil {
		return err
	}
	status := d.Uint32()
	d.Opaque(maxCompound)
	done := d.Uint32()
	if d.Err() == nil && status != 0 {
		return &statusError{status, int(done)}
	}
	read(d)
	return d.Err()
}

// statusError is the status of a failed COMPOUND, with the number of its results.
type statusError struct {
	status  uint32
	results int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("operation %d of the COMPOUND has the status %d", e.results, e.status)
}

// readResultHead reads the number and status of a result.
func readResultHead(d *xdr.Decoder, code uint32) {
	if got := d.Uint32(); got != code {
		d.Fail("result of operation %d, that of %d is due", got, code)
	}
	if status := d.Uint32(); status != 0 {
		d.Fail("operation %d has the status %d in a COMPOUND without error", code, status)
	}
}

// createSession creates a session for COMPOUNDs of at most so many operations (RFC 8881 sections
// 18.35 and 18.36).
func (c *compoundClient) createSession(ctx context.Context, operations int) error {
	var owner [24]byte
	rand.Read(owner[:])
	const useNonPNFS = 0x00010000
	var sequence uint32
	err := c.call(ctx, 1, func(e *xdr.Encoder) {
		e.Uint32(schema.OpExchangeID)
		e.Fixed(owner[:8]) // verifier
		e.Opaque(owner[8:])
		e.Uint32(useNonPNFS)
		e.Uint32(0) // SP4_NONE
		e.Uint32(0) // no implementation id
	}, func(d *xdr.Decoder) {
		readResultHead(d, schema.OpExchangeID)
		c.clientID = d.Uint64()
		sequence = d.Uint32()
	})
	if err != nil {
		return fmt.Errorf("EXCHANGE_ID: %w", err)
	}
	channel := func(e *xdr.Encoder, operations int) {
		e.Uint32(0) // header padding
		e.Uint32(maxCompound)
		e.Uint32(maxCompound)
		e.Uint32(0) // cache nothing
		e.Uint32(uint32(operations))
		e.Uint32(1) // slot
		e.Uint32(0) // no RDMA attributes
	}
	err = c.call(ctx, 1, func(e *xdr.Encoder) {
		e.Uint32(schema.OpCreateSession)
		e.Uint64(c.clientID)
		e.Uint32(sequence)
		e.Uint32(0) // not persistent, no back channel
		channel(e, operations)
		channel(e, 2)
		e.Uint32(0x40000000) // callback program
		e.Uint32(1)
		e.Uint32(oncrpc.AuthNone)
	}, func(d *xdr.Decoder) {
		readResultHead(d, schema.OpCreateSession)
		c.session = bytes.Clone(d.Fixed(16))
	})
	if err != nil {
		return errors.Join(fmt.Errorf("CREATE_SESSION: %w", err), c.destroySession(ctx))
	}
	return nil
}

// destroySession destroys the session and the client ID.
func (c *compoundClient) destroySession(ctx context.Context) error {
	nothing := func(*xdr.Decoder) {}
	if c.session != nil {
		if err := c.call(ctx, 1, func(e *xdr.Encoder) {
			e.Uint32(schema.OpDestroySession)
			e.Fixed(c.session)
		}, nothing); err != nil {
			return fmt.Errorf("DESTROY_SESSION: %w", err)
		}
	}
	if err := c.call(ctx, 1, func(e *xdr.Encoder) {
		e.Uint32(schema.OpDestroyClientID)
		e.Uint64(c.clientID)
	}, nothing); err != nil {
		return fmt.Errorf("DESTROY_CLIENTID: %w", err)
	}
	return nil
}

func readBitmap(d *xdr.Decoder) (words []uint32) {
	for n := d.Uint32(); n > 0 && d.Err() == nil; n-- {
		words = append(words, d.Uint32())
	}
	return words
}

// lookupRoot finds the handle, fileid and supported attributes of the directory at names.
func (c *compoundClient) lookupRoot(ctx context.Context, names []string, root *rewrite.Roots) (err error) {
	n := len(names) + 3
	if c.minor > 0 {
		n++
		c.sequence++
	}
	var kind uint32
	err = c.call(ctx, n, func(e *xdr.Encoder) {
		if c.minor > 0 {
			e.Uint32(schema.OpSequence)
			e.Fixed(c.session)
			e.Uint32(c.sequence)
			e.Uint64(0) // slot and highest slot
			e.Uint32(0) // do not cache
		}
		e.Uint32(schema.OpPutRootFH)
		for _, name := range names {
			e.Uint32(schema.OpLookup)
			e.String(name)
		}
		e.Uint32(schema.OpGetFH)
		e.Uint32(schema.OpGetAttr)
		mask := [3]uint32{1<<schema.AttrSupported | 1<<attrType | 1<<attrFileID}
		if c.minor > 0 {
			mask[schema.AttrSuppAttrExclCreat/32] = 1 << (schema.AttrSuppAttrExclCreat % 32)
		}
		e.Uint32(uint32(len(mask)))
		for _, w := range mask {
			e.Uint32(w)
		}
	}, func(d *xdr.Decoder) {
		if c.minor > 0 {
			readResultHead(d, schema.OpSequence)
			d.Skip(16 + 5*4)
		}
		readResultHead(d, schema.OpPutRootFH)
		for range names {
			readResultHead(d, schema.OpLookup)
		}
		readResultHead(d, schema.OpGetFH)
		root.V4 = bytes.Clone(d.Opaque(128))
		readResultHead(d, schema.OpGetAttr)
		mask := append(readBitmap(d), 0, 0, 0, 0)
		const want, may = 1<<attrType | 1<<attrFileID, 1 << (schema.AttrSuppAttrExclCreat % 32)
		if mask[0]&^1 != want || mask[1] != 0 || mask[2]&^may != 0 || slices.Max(mask[3:]) != 0 {
			d.Fail("the root's attributes have the mask %#x; its type and fileid were asked for, and which ones it supports", mask)
		}
		d.Uint32() // their length
		if mask[0]&1 != 0 {
			root.Supported4 = readBitmap(d)
		}
		kind = d.Uint32()
		root.FileID4 = d.Uint64()
		if mask[schema.AttrSuppAttrExclCreat/32] != 0 {
			root.ExclCreat4 = readBitmap(d)
		}
	})
	var failed *statusError
	if at := 0; errors.As(err, &failed) {
		if at = failed.results - 2; c.minor > 0 {
			at--
		}
		if at >= 0 && at < len(names) {
			return fmt.Errorf("LOOKUP of %q: %w", names[at], err)
		}
	}
	if err == nil && kind != typeDir {
		err = errNotDirectory
	}
	return err
}
