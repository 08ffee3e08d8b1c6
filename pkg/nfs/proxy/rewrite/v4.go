package rewrite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	// maxTag bounds the tag of a COMPOUND; the protocol has no bound.
	maxTag = 1024
	// maxInserts bounds the operations of a COMPOUND that grow or are inserted: those that lead to
	// the root, and root checks before LOOKUPP. Session limits leave room for them.
	maxInserts = 4
)

var compoundProc = schema.Proc{Program: 100003, Version: 4, Procedure: 1}

// compound is the state of a COMPOUND or CB_COMPOUND between call and reply.
type compound struct {
	// ops are the forwarded operations, without inserted ones.
	ops []operation
	// inserted counts inserted operations, grown those that got longer.
	inserted, grown int
	// refusal follows the results of ops, unless one of them fails.
	refusal
}

// operation is the state of one operation.
type operation struct {
	code uint32 // from the client
	sent uint32 // to the backend
	// rootChecks is the number of NVERIFYs inserted before it.
	rootChecks int
	// place is the current filehandle before it.
	place place
	// handle is that of PUTFH or of a compared attribute, without its tag; it refers to memory of
	// the call.
	handle     []byte
	fore, back channel
	// hideFileID: the gateway asks for the fileid, the client does not.
	hideFileID bool
}

// refusal is the result of an operation that was refused here, if any.
type refusal struct {
	refused    bool
	code, stat uint32
}

// refuse ends the COMPOUND with a status of the gateway.
func (r *refusal) refuse(code, status uint32) { *r = refusal{true, code, status} }

// maxRefusal bounds refusal.size.
const maxRefusal = 12

func (r *refusal) size() int { return 8 + failureLenV4(r.code) }

// writeTo writes the result to b, whose length is size.
func (r *refusal) writeTo(b []byte) {
	clear(b)
	binary.BigEndian.PutUint32(b, r.code)
	binary.BigEndian.PutUint32(b[4:], r.stat)
}

func (c *compound) resetCompound() {
	clear(c.ops)
	*c = compound{ops: c.ops[:0]}
}

// compoundHead is the start of the arguments of a COMPOUND or CB_COMPOUND.
type compoundHead struct {
	tag     []byte
	minor   uint32
	countAt int // position of the count of operations
}

// readHead reads the head from the start of the arguments.
func readHead(d *xdr.Decoder, callback bool) (h compoundHead, err error) {
	h.tag = d.Opaque(maxTag)
	h.minor = d.Uint32()
	if callback {
		d.Uint32() // callback_ident
	}
	h.countAt = d.Pos()
	return h, d.Err()
}

// argsV4 reads a COMPOUND and checks its operations.
func (c *Call) argsV4(x *Export, who *Caller, in *oncrpc.Call) (Verdict, error) {
	c.resetCompound()
	h, err := readHead(in.Args(), false)
	if err != nil {
		return c.garbageArgs(in)
	}
	// In 4.0, refusing an operation of a read-only export would have to advance its owner's seqid,
	// which only the backend can.
	if h.minor >= uint32(len(x.Minor)) || !x.Minor[h.minor] || h.minor == 0 && who.ReadOnly {
		return c.answerCompound(in, h.tag, errMinorMismatch, nil)
	}
	failed, err := walkOps(&c.walker, compoundProc, in)
	if err != nil {
		return c.garbageArgs(in)
	}
	if c.exceedsSession(x, in) {
		// An error of SEQUENCE itself leaves the slot unchanged at both ends (RFC 8881, section
		// 18.46.3).
		return c.answerCompound(in, h.tag, errTooManyOps, &refusal{true, schema.OpSequence, errTooManyOps})
	}
	roots := x.Roots.Load()
	if roots == nil {
		roots = &noRoots
	}
	if x.needsUnknownRoot(roots, c.walker.Ops) {
		return Answered, ErrNoRoot
	}
	oc := opChecker{x: x, who: who, roots: roots, minor: h.minor, in: in, spans: c.walker.Spans}
	for i := range c.walker.Ops {
		if c.checkOp(&oc, &c.walker.Ops[i]); c.refused {
			break
		}
	}
	if failed != nil && !c.refused {
		c.refuse(unreadableOp(failed, h.minor))
	}
	if c.refused && len(c.ops) > 0 && h.minor > 0 && c.ops[0].code != schema.OpSequence && sessionless(c.ops[0].code) {
		// Without the refused operation it would be alone, and executed.
		c.refuse(c.ops[0].code, errNotOnlyOp)
		c.ops = c.ops[:0]
	}
	if c.refused && len(c.ops) == 0 {
		if h.minor > 0 && !sessionless(c.code) && c.stat != errOpIllegal && c.stat != errBadXDR {
			c.stat = errNotInSession
		}
		return c.answerCompound(in, h.tag, c.stat, &c.refusal)
	}
	c.editOps(&c.edits, &oc, c.walker.Ops, h.countAt, in.Len())
	return Forward, nil
}

// exceedsSession reports whether a COMPOUND has more operations than its session permits.
func (c *Call) exceedsSession(x *Export, in *oncrpc.Call) bool {
	w := &c.walker
	if w.Minor == 0 || len(w.Ops) == 0 || w.Ops[0].Code != schema.OpSequence {
		return false
	}
	count := w.Spans[1].Value // after the minor version
	if !x.sessions.mayExceed(count) {
		return false
	}
	c.dec.Reset(in.Stream, in.Items)
	c.dec.Skip(w.Ops[0].Pos + 4)
	id := c.dec.Fixed(len(sessionID{}))
	return c.dec.Err() == nil && x.sessions.exceeds(sessionID(id), count)
}

// noRoots is for calls that do not need the root.
var noRoots Roots

// needsUnknownRoot reports whether rewriting a COMPOUND depends on an unknown root: the result must
// be the same each time. LOOKUPP is checked against the root of version 3 too.
func (x *Export) needsUnknownRoot(r *Roots, ops []schema.Op) bool {
	no4 := len(r.V4) == 0
	no3 := x.V3 && len(r.V3) == 0 && !r.No3
	for i := range ops {
		switch ops[i].Code {
		case schema.OpPutFH, schema.OpPutRootFH, schema.OpPutPubFH:
			if no4 {
				return true
			}
		case schema.OpLookupP:
			if no4 || no3 {
				return true
			}
		}
	}
	return false
}

// walkOps reads the operations of a call. failed describes the first unreadable one.
func walkOps(w *schema.Walker, p schema.Proc, in *oncrpc.Call) (failed *schema.Error, err error) {
	if err = w.Args(p, in.Args()); err == nil {
		return nil, nil
	}
	var e *schema.Error
	if errors.As(err, &e) && e.Op >= 0 {
		return e, nil
	}
	return nil, err
}

// unreadableOp returns the result of an unreadable operation.
func unreadableOp(e *schema.Error, minor uint32) (code, status uint32) {
	switch {
	case e.TooMany:
		// An error of SEQUENCE itself leaves the slot unchanged at both ends (RFC 8881, section
		// 18.46.3).
		return e.Code, tooManyOps(minor)
	case e.Unknown:
		return schema.OpIllegal, errOpIllegal
	case e.Attr:
		return e.Code, errAttrNotSupp
	case e.Code == 0: // even its number is missing
		return schema.OpIllegal, errBadXDR
	default:
		return e.Code, errBadXDR
	}
}

// editOps edits the operations of a call of length bytes and cuts off the refused ones.
func (c *compound) editOps(e *Edits, oc *opChecker, ops []schema.Op, countAt, length int) {
	if c.refused || c.inserted > 0 {
		putUint32(e, countAt, uint32(len(c.ops)+c.inserted))
	}
	end := countAt + 4
	for i := range c.ops {
		c.ops[i].edit(e, oc, &ops[i])
		end = ops[i].End
	}
	if end < length {
		e.Replace(end, length-end, 0)
	}
}

// answerCompound answers with no result, or with that of the first operation.
func (c *Call) answerCompound(in *oncrpc.Call, tag []byte, status uint32, first *refusal) (Verdict, error) {
	if c.gss {
		return c.deny(in, oncrpc.AuthTooWeak) // the reply to an accepted call needs a verifier
	}
	return Answered, writeCompound(in, tag, status, first)
}

// writeCompound makes in.Reply the results of a COMPOUND or CB_COMPOUND.
func writeCompound(in *oncrpc.Call, tag []byte, status uint32, first *refusal) error {
	e, err := in.BeginReply(oncrpc.MinReplyLen + 12 + xdr.Round(len(tag)) + maxRefusal)
	if err != nil {
		return err
	}
	e.Uint32(status)
	e.Opaque(tag)
	if first == nil {
		e.Uint32(0)
	} else {
		e.Uint32(1)
		first.writeTo(e.Grow(first.size()))
	}
	in.EndReply()
	return nil
}

// resultsV4 reads and edits the results of a COMPOUND, from c.dec on.
func (c *Call) resultsV4(x *Export, in *oncrpc.Call, reply *oncrpc.Message) error {
	err := c.walker.Results(compoundProc, &c.dec)
	if err == nil {
		roots := x.Roots.Load()
		if roots == nil {
			roots = &noRoots
		}
		a := resultContext{x: x, roots: roots, readOnly: c.readOnly, reply: reply, spans: c.walker.Spans}
		err = c.editResults(&c.edits, &a, c.walker.Ops)
	}
	if err != nil {
		return fmt.Errorf("rewrite: results of a COMPOUND: %w", err)
	}
	return nil
}
