package rewrite

import (
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// judge decides on the operations of a COMPOUND one after the other.
type judge struct {
	x     *Export
	who   *Caller
	roots *Roots
	minor uint32
	in    *oncrpc.Call
	dec   xdr.Decoder
	spans []schema.Span
	track
}

// take puts the operation among those to be forwarded, or refuses it.
func (c *compound) take(j *judge, op *schema.Op) {
	o := operation{code: op.Code, sent: op.Code, at: j.current}
	if status := j.judge(&o, op); status != ok4 {
		c.refuse(op.Code, status)
		return
	}
	grown := 0
	switch op.Code {
	case schema.OpPutRootFH, schema.OpPutPubFH:
		// The public filehandle is the root's: any other place would be a way out.
		o.sent, o.handle, grown = schema.OpPutFH, j.roots.V4, 1
	case schema.OpLookupP:
		if o.at.mayBeRoot() {
			o.guards = j.roots.guards()
		}
	}
	if c.inserted+c.grown+o.guards+grown > maxInserts || len(c.ops)+1+c.inserted+o.guards > schema.MaxOps { // results of more could not be read
		c.refuse(op.Code, tooMany(j.minor))
		return
	}
	c.inserted += o.guards
	c.grown += grown
	c.ops = append(c.ops, o)
}

// tooMany says that a COMPOUND has more operations than can be taken.
func tooMany(minor uint32) uint32 {
	if minor == 0 {
		return errResource
	}
	return errTooManyOps
}

// judge returns the status with which an operation is refused, or ok4, having noted in o what its editing needs.
func (j *judge) judge(o *operation, op *schema.Op) uint32 {
	if o.code < uint32(len(refused)) && refused[o.code] != ok4 {
		return refused[o.code]
	}
	if j.who.ReadOnly && j.writes(op) {
		return errROFS
	}
	if o.code == schema.OpLookupP && o.at.isRoot() {
		return errNoEnt
	}
	named := false
	ch := &o.fore
	for spans := j.spans[op.First:op.Last]; len(spans) > 0; spans = spans[1:] {
		s := &spans[0]
		status := uint32(ok4)
		switch s.Mark {
		case schema.Name:
			named = true
			if o.code < schema.OpGetXattr { // the name of an extended attribute leads nowhere
				status = badName(s.B)
			}
		case schema.Handle:
			status = j.open(o, s.B)
		case schema.Attrs:
			status = badAttrs(o.code, s.B)
		case schema.Attr:
			if s.Value == schema.AttrFileHandle {
				status = j.open(o, opaqueIn(s.B))
			}
		case schema.Sources:
			if s.Value > 0 { // the data would come from another server
				status = errNotSupp
			}
		case schema.Style:
			// This is the answer where there is no parent (RFC 8881, section 18.45.3). One who does not say from where cannot know either whether there is.
			if s.Value == styleParent && o.at.mayBeRoot() {
				status = errNoEnt
			}
		case schema.MaxRequestSize, schema.MaxResponseSize, schema.MaxResponseSizeCached, schema.MaxOperations:
			ch.set(s)
			if s.Mark == schema.MaxOperations {
				ch = &o.back
			}
		}
		if status != ok4 {
			return status
		}
	}
	if status := j.lacks(j.needs(op), op.Code, j.minor); status != ok4 {
		return status
	}
	j.after(o.code, j.minor, o.handle, named, j.roots)
	return ok4
}

// needs returns the filehandles that an operation works on.
func (j *judge) needs(op *schema.Op) filehandles {
	switch {
	case op.Code == schema.OpReclaimComplete && wordAt(&j.dec, &j.in.Message, op.Pos+4) != 0: // rca_one_fs
		return currentFH
	case op.Code < uint32(len(worksOn)):
		return worksOn[op.Code]
	default:
		return 0
	}
}

// writes tells whether an operation may change something.
func (j *judge) writes(op *schema.Op) bool {
	switch op.Code {
	case schema.OpOpen:
		spans := j.spans[op.First:op.Last]
		for i := range spans {
			if s := &spans[i]; s.Mark == schema.ShareAccess && s.Value&shareAccessWrite != 0 || s.Mark == schema.OpenType && s.Value == openCreate {
				return true
			}
		}
		return false
	case schema.OpOpenAttr: // createdir
		return wordAt(&j.dec, &j.in.Message, op.Pos+4) != 0
	default:
		return op.Code < uint32(len(writes)) && writes[op.Code]
	}
}

// open takes the tag off a handle that the client sent.
func (j *judge) open(o *operation, signed []byte) uint32 {
	handle, ok := j.x.Signer.Verify(signed, sign.Max4)
	if !ok {
		return errBadHandle
	}
	o.handle = handle
	return ok4
}
