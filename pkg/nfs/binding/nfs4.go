package binding

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// nfs4Binding is the binding of NFS version 4, all minor versions (RFC 8267 section 6). Eligible
// arguments of a COMPOUND are the data of WRITE and the link text of CREATE; eligible results are
// the data of READ and the link text of READLINK.
type nfs4Binding struct{ inlineLinks bool }

const (
	nfs4Version  = 4
	procCompound = 1
)

// Estimates, in bytes, of results without a length limit in the protocol (RFC 8267 section 6.3).
const (
	// nameGuess applies to names of users, groups, hosts and programs.
	nameGuess = 256
	// aclGuess applies to access control lists. Linux stores one in an extended attribute of at
	// most this size.
	aclGuess = 64 << 10
	// xattrGuess applies to values of extended attributes.
	xattrGuess = 64 << 10
	// listGuess applies to all other lists: servers, flavors, layout types, thresholds.
	listGuess = 4 << 10
)

const (
	// maxResults bounds all eligible results of a COMPOUND together.
	maxResults = 4 << 20
	// maxRest bounds all other results together.
	maxRest = 2 << 20
)

var compound = schema.Proc{Program: nfs3.Program, Version: nfs4Version, Procedure: procCompound}

// walkers pools schema.Walkers: all connections use a binding concurrently, and it has no state.
var walkers = sync.Pool{New: func() any { return new(schema.Walker) }}

func putWalker(w *schema.Walker) {
	clear(w.Spans) // they refer to the message
	walkers.Put(w)
}

// Plan implements oncrpc.Binding. A call may contain an unknown operation, attribute or minor
// version. Plan then covers the operations before it: the server executes no others.
func (b nfs4Binding) Plan(p *oncrpc.Plan, args []oncrpc.Argument, procedure uint32, d *xdr.Decoder) ([]oncrpc.Argument, error) {
	p.Results = p.Results[:0]
	p.MaxReply, p.Estimated = 0, false
	if procedure != procCompound {
		return args, nil
	}
	begin := d.Pos()
	w := walkers.Get().(*schema.Walker)
	defer putWalker(w)
	err := w.Args(compound, d)
	if err != nil && w.Minor <= schema.MaxMinor && !beyond(err) {
		return args, err
	}
	tag := 0 // the reply repeats it
	if len(w.Spans) > 0 {
		tag = w.Spans[0].Pos - begin
	}
	rest, data, reads := 4+tag+4, 0, false
	if err != nil {
		rest += 8 // result of the unknown operation
	}
	harmless := w.Minor == 0 && err == nil
	for i := range w.Ops {
		op := &w.Ops[i]
		spans := w.Spans[op.First:op.Last]
		harmless = harmless && changesNothing(op.Code)
		p.Estimated = p.Estimated || estimates(op.Code, spans)
		size, open := schema.ResultSize(op.Code)
		if open {
			size += guess(op, spans)
		}
		rest += size
		reads = reads || op.Code == schema.OpRead
		if limit := eligible(op.Code, spans); limit >= 0 {
			limit = min(limit, maxResults-data)
			data += xdr.Round(limit)
			p.Results = append(p.Results, oncrpc.Result{Max: limit, Begin: op.Pos, End: op.End})
		}
		for j := range spans {
			if s := &spans[j]; s.Mark == schema.Data {
				args = append(args, oncrpc.Argument{Position: s.Pos + 4, Length: int(s.Value)})
			}
		}
	}
	if b.inlineLinks && !reads {
		p.Results = p.Results[:0]
	}
	p.MaxReply, p.Estimated = min(rest, maxRest)+data, p.Estimated && harmless
	return args, nil
}

// beyond reports whether an error of schema means an unknown or excessive operation or attribute.
// The server's reply covers that case.
func beyond(err error) bool {
	var e *schema.Error
	return errors.As(err, &e) && (e.Unknown || e.Attr || e.TooMany)
}

// eligible returns the maximum length of an operation's eligible result, -1 if it has none.
func eligible(code uint32, spans []schema.Span) int {
	switch code {
	case schema.OpRead:
		return count(spans)
	case schema.OpReadlink:
		return nfs3.MaxPath
	}
	return -1
}

// count returns the argument that bounds the result.
func count(spans []schema.Span) int {
	for i := range spans {
		if spans[i].Mark == schema.Count {
			return int(min(spans[i].Value, nfs3.MaxData))
		}
	}
	return 0
}

// guess returns the maximum of an operation's results beyond schema.ResultSize, without eligible
// results.
func guess(op *schema.Op, spans []schema.Span) int {
	switch op.Code {
	case schema.OpRead, schema.OpReadlink:
		return 0
	case schema.OpReaddir, schema.OpGetDeviceInfo, schema.OpLayoutGet, schema.OpListXattrs:
		return xdr.Round(count(spans))
	case schema.OpReadPlus:
		return xdr.Round(count(spans)) + listGuess // segment headers
	case schema.OpGetDeviceList:
		return min(16*count(spans), nfs3.MaxData)
	case schema.OpTestStateID:
		return (op.End - op.Pos) / 4 // one word per stateid4
	case schema.OpGetAttr:
		for i := range spans {
			if spans[i].Mark == schema.AttrMask {
				return attrs(spans[i].B)
			}
		}
		return 0
	case schema.OpOpen, schema.OpWantDelegation, schema.OpSetSSV:
		return nameGuess
	case schema.OpSetClientID:
		return 2 * nameGuess
	case schema.OpGetXattr:
		return xattrGuess
	default: // SECINFO, EXCHANGE_ID, COPY_NOTIFY and similar
		return listGuess
	}
}

// estimates reports whether guess may be too small for a short result of an operation that changes
// nothing (RFC 8267 section 6.3).
func estimates(code uint32, spans []schema.Span) bool {
	if code == schema.OpSecInfo {
		return true
	}
	for i := range spans {
		if code == schema.OpGetAttr && spans[i].Mark == schema.AttrMask {
			return opens(spans[i].B)
		}
	}
	return false
}

// changesNothing reports whether an operation of version 4.0 may be executed twice. A COMPOUND of a
// later minor version takes the next sequence number of a slot, and so cannot be.
func changesNothing(code uint32) bool {
	switch code {
	case schema.OpAccess, schema.OpGetAttr, schema.OpGetFH, schema.OpLookup, schema.OpLookupP, schema.OpNVerify,
		schema.OpPutFH, schema.OpPutPubFH, schema.OpPutRootFH, schema.OpRead, schema.OpReaddir, schema.OpReadlink,
		schema.OpRestoreFH, schema.OpSaveFH, schema.OpSecInfo, schema.OpVerify:
		return true
	}
	return false
}

// attrs returns the maximum length of attribute values; mask has the words of a bitmap4.
func attrs(mask []byte) int {
	n := 0
	for i := 0; i+4 <= len(mask); i += 4 {
		for word := binary.BigEndian.Uint32(mask[i:]); word != 0; word &= word - 1 {
			attr := uint32(i*8 + bits.TrailingZeros32(word))
			size, open := schema.AttrSize(attr)
			n += size
			if open {
				n += attrGuess(attr)
			}
		}
	}
	return n
}

// opens reports whether mask, the words of a bitmap4, has an attribute without a length limit.
func opens(mask []byte) bool {
	for i := 0; i+4 <= len(mask); i += 4 {
		for word := binary.BigEndian.Uint32(mask[i:]); word != 0; word &= word - 1 {
			if _, open := schema.AttrSize(uint32(i*8 + bits.TrailingZeros32(word))); open {
				return true
			}
		}
	}
	return false
}

func attrGuess(attr uint32) int {
	switch attr {
	case schema.AttrACL, schema.AttrDACL, schema.AttrSACL:
		return aclGuess
	case schema.AttrOwner, schema.AttrOwnerGroup, schema.AttrMIMEType:
		return nameGuess
	}
	return listGuess
}

// Results implements oncrpc.Binding.
func (nfs4Binding) Results(found []oncrpc.Found, p *oncrpc.Plan, placed []int, procedure uint32, d *xdr.Decoder) ([]oncrpc.Found, error) {
	if procedure != procCompound || len(p.Results) == 0 {
		return found, nil
	}
	w := walkers.Get().(*schema.Walker)
	defer putWalker(w)
	err := w.ResultsPlaced(compound, d, placed)
	if err != nil && !beyond(err) {
		return found, err
	}
	first := len(found)
	for i := range w.Ops {
		op := &w.Ops[i]
		if op.Code != schema.OpRead && op.Code != schema.OpReadlink {
			continue
		}
		k := len(found) - first
		if k == len(p.Results) {
			d.Fail("operation %d has an eligible result, only %d are planned", i, k)
			return found[:first], d.Err()
		}
		f := locate(w.Spans[op.First:op.Last])
		if limit := p.Results[k].Max; f.Length > limit {
			d.Fail("result %d has %d bytes, at most %d were asked for", k, f.Length, limit)
			return found[:first], d.Err()
		}
		found = append(found, f)
	}
	if err != nil && len(found)-first < len(p.Results) {
		return found[:first], err // the unknown operation may hide later results
	}
	for len(found)-first < len(p.Results) {
		found = append(found, oncrpc.Found{State: oncrpc.Absent})
	}
	for k, n := range placed {
		if n > 0 && (k >= len(p.Results) || found[first+k].State != oncrpc.Placed) {
			d.Fail("%d bytes were placed for result %d, which has no data", n, k)
			return found[:first], d.Err()
		}
	}
	return found, nil
}

// locate finds the eligible result among an operation's fields.
func locate(spans []schema.Span) oncrpc.Found {
	for i := range spans {
		s := &spans[i]
		if s.Mark != schema.Data || s.Value == 0 {
			continue
		}
		f := oncrpc.Found{State: oncrpc.Inline, Position: s.Pos + 4, Length: int(s.Value)}
		if s.Out {
			f.State = oncrpc.Placed
		}
		return f
	}
	return oncrpc.Found{State: oncrpc.Absent}
}
