package rewrite

import (
	"encoding/binary"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/xdr"
)

// minEntryV4 is the length of the shortest READDIR entry with a handle: value_follows, cookie,
// name, bitmap, length of the attributes, and of a handle.
const minEntryV4 = 4 + 8 + 8 + 8 + 4 + 4

// edit rewrites an operation for the backend.
func (o *operation) edit(e *Edits, oc *opChecker, op *schema.Op) {
	spans := oc.spans[op.First:op.Last]
	switch o.code {
	case schema.OpPutRootFH, schema.OpPutPubFH:
		putUint32(e, op.Pos, o.sent)
		copy(putOpaque(e, op.End, 0, len(o.handle)), o.handle)
	case schema.OpLookupP:
		if o.rootChecks > 0 {
			putRootCheck(e, op.Pos, oc.roots.V4)
		}
		if o.rootChecks > 1 {
			putRootCheck(e, op.Pos, oc.roots.V3)
		}
	case schema.OpVerify, schema.OpNVerify:
		o.editCompared(e, oc, spans)
	case schema.OpCreateSession:
		editSession(e, &oc.in.Message, spans, op.Pos+16, o.fore.foreRequest(oc.x), o.back.backRequest(oc.x))
	case schema.OpBindConnToSession:
		if at := op.Pos + 24; wordAt(&oc.dec, &oc.in.Message, at) != 0 {
			putUint32(e, at, 0) // bctsa_use_conn_in_rdma_mode
		}
	default:
		o.editSpans(e, oc, spans)
	}
}

// editSpans edits fields that do not depend on each other.
func (o *operation) editSpans(e *Edits, oc *opChecker, spans []schema.Span) {
	count := -1
	for i := range spans {
		s := &spans[i]
		switch s.Mark {
		case schema.Handle:
			if len(s.B) != len(o.handle) {
				copy(putOpaque(e, s.Pos, s.Len, len(o.handle)), o.handle)
			}
		case schema.Count:
			count = i
		case schema.AttrMask:
			if o.code == schema.OpReaddir && count >= 0 && oc.x.Signer.Overhead() > 0 && hasAttr(s.B, schema.AttrFileHandle) {
				putUint32(e, spans[count].Pos, roomForTags(spans[count].Value, oc.x.Signer.Overhead()))
			}
			if o.needsFileID(s.B) {
				o.hideFileID = true
				putMask(e, s, o.visible(), schema.AttrFileID)
			} else {
				maskRequest(e, s, o.visible())
			}
		case schema.ClientOwner:
			putDistinct(e, s, oc.x.UID)
		case schema.CallbackAddress:
			copy(e.Replace(s.Pos, s.Len, len(nullCallbackAddress)), nullCallbackAddress)
		case schema.ExchangeFlags:
			if flags := uint32(s.Value); nonPNFS(flags) != flags {
				putUint32(e, s.Pos, nonPNFS(flags))
			}
		}
	}
}

// roomForTags lowers maxcount of READDIR so that the entries fit in it when all their handles are
// signed.
func roomForTags(maxcount uint64, grows int) uint32 {
	return uint32(maxcount * minEntryV4 / uint64(minEntryV4+grows))
}

// editCompared rewrites the attributes of VERIFY and NVERIFY to the backend's values: it removes
// the tag of the handle and adds hidden attributes to sets.
func (o *operation) editCompared(e *Edits, oc *opChecker, spans []schema.Span) {
	for i := range spans { // the total length comes first
		s := &spans[i]
		if s.Mark == schema.Attr && s.Value == schema.AttrFileHandle && len(opaqueBytes(s.B)) != len(o.handle) {
			length := &spans[1]
			putUint32(e, length.Pos, uint32(int(length.Value)+xdr.Round(len(o.handle))+4-s.Len))
		}
	}
	for i := range spans {
		s := &spans[i]
		if s.Mark == schema.Attr && s.Value == schema.AttrSupported {
			putSupported(e, s, oc.minor, oc.roots.Supported4)
		}
		if s.Mark == schema.Attr && s.Value == schema.AttrSuppAttrExclCreat {
			putSupported(e, s, oc.minor, oc.roots.ExclCreat4)
		}
		if s.Mark != schema.Attr || s.Value != schema.AttrFileHandle || len(opaqueBytes(s.B)) == len(o.handle) {
			continue
		}
		copy(putOpaque(e, s.Pos, s.Len, len(o.handle)), o.handle)
	}
}

// putRootCheck inserts an NVERIFY that fails if the current filehandle is handle.
func putRootCheck(e *Edits, pos int, handle []byte) {
	size := xdr.Round(len(handle))
	b := e.Replace(pos, 0, insertLen-sign.Max4+size)
	for i, v := range [...]uint32{schema.OpNVerify, 1, 1 << schema.AttrFileHandle, uint32(4 + size), uint32(len(handle))} {
		binary.BigEndian.PutUint32(b[4*i:], v)
	}
	clear(b[20+copy(b[20:], handle):])
}
