package rewrite

import (
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// opChecker checks the operations of a COMPOUND one by one.
type opChecker struct {
	x     *Export
	who   *Caller
	roots *Roots
	minor uint32
	in    *oncrpc.Call
	dec   xdr.Decoder
	spans []schema.Span
	fhTracker
}

// checkOp adds the operation to the forwarded ones, or refuses it.
func (c *compound) checkOp(oc *opChecker, op *schema.Op) {
	o := operation{code: op.Code, sent: op.Code, place: oc.current}
	if status := oc.check(&o, op); status != ok4 {
		c.refuse(op.Code, status)
		return
	}
	grown := 0
	switch op.Code {
	case schema.OpPutRootFH, schema.OpPutPubFH:
		// The public filehandle is the root too; another one could lead out of the export.
		o.sent, o.handle, grown = schema.OpPutFH, oc.roots.V4, 1
	case schema.OpLookupP:
		if o.place.mayBeRoot() {
			o.rootChecks = oc.roots.handleCount()
		}
	}
	// the results of more would be unreadable
	if c.inserted+c.grown+o.rootChecks+grown > maxInserts || len(c.ops)+1+c.inserted+o.rootChecks > schema.MaxOps {
		c.refuse(op.Code, tooManyOps(oc.minor))
		return
	}
	c.inserted += o.rootChecks
	c.grown += grown
	c.ops = append(c.ops, o)
}

// tooManyOps returns the status for too many operations.
func tooManyOps(minor uint32) uint32 {
	if minor == 0 {
		return errResource
	}
	return errTooManyOps
}

// check returns the status that refuses an operation, or ok4. It records in o the facts for
// editing.
func (oc *opChecker) check(o *operation, op *schema.Op) uint32 {
	if o.code < uint32(len(refusedOps)) && refusedOps[o.code] != ok4 {
		return refusedOps[o.code]
	}
	if oc.who.ReadOnly && oc.mayWrite(op) {
		return errROFS
	}
	if o.code == schema.OpLookupP && o.place.isRoot() {
		return errNoEnt
	}
	named := false
	ch := &o.fore
	for spans := oc.spans[op.First:op.Last]; len(spans) > 0; spans = spans[1:] {
		s := &spans[0]
		status := uint32(ok4)
		switch s.Mark {
		case schema.Name:
			named = true
			if o.code < schema.OpGetXattr { // extended attributes have names, but no path
				status = checkNameV4(s.B)
			}
		case schema.Handle:
			status = oc.openHandle(o, s.B)
		case schema.Attrs:
			status = checkAttrs(o.code, s.B)
		case schema.Attr:
			if s.Value == schema.AttrFileHandle {
				status = oc.openHandle(o, opaqueBytes(s.B))
			}
		case schema.Sources:
			if s.Value > 0 { // the data would come from another server
				status = errNotSupp
			}
		case schema.Style:
			// The status for a missing parent (RFC 8881, section 18.45.3). The place is unknown, so
			// whether there is a parent is too.
			if s.Value == styleParent && o.place.mayBeRoot() {
				status = errNoEnt
			}
		case schema.MaxRequestSize, schema.MaxResponseSize, schema.MaxResponseSizeCached, schema.MaxOperations:
			ch.setField(s)
			if s.Mark == schema.MaxOperations {
				ch = &o.back
			}
		}
		if status != ok4 {
			return status
		}
	}
	if status := oc.checkFilehandles(oc.filehandlesOf(op), op.Code, oc.minor); status != ok4 {
		return status
	}
	oc.advance(o.code, oc.minor, o.handle, named, oc.roots)
	return ok4
}

// filehandlesOf returns the filehandles that an operation needs.
func (oc *opChecker) filehandlesOf(op *schema.Op) filehandles {
	switch {
	// rca_one_fs
	case op.Code == schema.OpReclaimComplete && wordAt(&oc.dec, &oc.in.Message, op.Pos+4) != 0:
		return currentFH
	case op.Code < uint32(len(worksOn)):
		return worksOn[op.Code]
	default:
		return 0
	}
}

// mayWrite reports whether an operation may change something.
func (oc *opChecker) mayWrite(op *schema.Op) bool {
	switch op.Code {
	case schema.OpOpen:
		spans := oc.spans[op.First:op.Last]
		for i := range spans {
			if s := &spans[i]; s.Mark == schema.ShareAccess && s.Value&shareAccessWrite != 0 || s.Mark == schema.OpenType && s.Value == openCreate {
				return true
			}
		}
		return false
	case schema.OpOpenAttr: // createdir
		return wordAt(&oc.dec, &oc.in.Message, op.Pos+4) != 0
	default:
		return op.Code < uint32(len(writingOps)) && writingOps[op.Code]
	}
}

// openHandle verifies and removes the tag of a client's handle.
func (oc *opChecker) openHandle(o *operation, signed []byte) uint32 {
	handle, ok := oc.x.Signer.Verify(signed, sign.Max4)
	if !ok {
		return errBadHandle
	}
	o.handle = handle
	return ok4
}
