package rewrite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// ErrNoRoot means that the export's root is not known yet.
var ErrNoRoot = errors.New("rewrite: export root unknown")

// minEntryV3 is the length of the shortest READDIRPLUS entry with a handle: value_follows, fileid,
// name, cookie, no attributes, handle.
const minEntryV3 = 4 + 8 + 8 + 8 + 4 + 12

// accessWritesV3 are the ACCESS bits that a read-only export denies: MODIFY, EXTEND and DELETE (RFC
// 1813 section 3.3.4).
const accessWritesV3 = 0x04 | 0x08 | 0x10

// writingV3 has the procedures that a read-only export refuses.
const writingV3 = 1<<nfs3.ProcSetAttr | 1<<nfs3.ProcWrite | 1<<nfs3.ProcCreate | 1<<nfs3.ProcMkdir | 1<<nfs3.ProcSymlink | 1<<nfs3.ProcMknod |
	1<<nfs3.ProcRemove | 1<<nfs3.ProcRmdir | 1<<nfs3.ProcRename | 1<<nfs3.ProcLink

// failureLenV3 is the length of each procedure's empty failure result after the status: a zero word
// for each post_op_attr and for both parts of a wcc_data.
var failureLenV3 = [nfs3.Procedures]int{
	nfs3.ProcGetAttr:     0,
	nfs3.ProcSetAttr:     8,
	nfs3.ProcLookup:      4,
	nfs3.ProcAccess:      4,
	nfs3.ProcReadlink:    4,
	nfs3.ProcRead:        4,
	nfs3.ProcWrite:       8,
	nfs3.ProcCreate:      8,
	nfs3.ProcMkdir:       8,
	nfs3.ProcSymlink:     8,
	nfs3.ProcMknod:       8,
	nfs3.ProcRemove:      8,
	nfs3.ProcRmdir:       8,
	nfs3.ProcRename:      16,
	nfs3.ProcLink:        12,
	nfs3.ProcReaddir:     4,
	nfs3.ProcReaddirPlus: 4,
	nfs3.ProcFSStat:      4,
	nfs3.ProcFSInfo:      4,
	nfs3.ProcPathConf:    4,
	nfs3.ProcCommit:      8,
}

// walkArgs reads the arguments and reports whether they are well-formed.
func (c *Call) walkArgs(in *oncrpc.Call) bool {
	c.dec.Reset(in.Stream, in.Items)
	c.dec.Skip(in.ArgsAt)
	p := schema.Proc{Program: in.Program, Version: in.Version, Procedure: in.Procedure}
	return c.walker.Args(p, &c.dec) == nil && c.dec.Used() == len(in.Items)
}

// argsV3 rewrites the arguments of NFS version 3.
func (c *Call) argsV3(x *Export, in *oncrpc.Call) (Verdict, error) {
	if !c.walkArgs(in) {
		return c.garbageArgs(in)
	}
	listing := in.Procedure == nfs3.ProcReaddir || in.Procedure == nfs3.ProcReaddirPlus
	roots := x.Roots.Load()
	if listing && (roots == nil || len(roots.V3) == 0) {
		return Answered, ErrNoRoot
	}
	status := nfs3.OK
	if c.readOnly && writingV3>>in.Procedure&1 != 0 {
		status = nfs3.ErrROFS
	}
	for i := range c.walker.Spans {
		switch sp := &c.walker.Spans[i]; sp.Mark {
		case schema.Handle:
			h, ok := x.Signer.Verify(sp.B, sign.Max3)
			if !ok {
				return c.failV3(in, nfs3.ErrBadHandle, failureLenV3[in.Procedure])
			}
			if listing && bytes.Equal(h, roots.V3) {
				c.listsRoot, c.rootFileID = true, roots.FileID3
			}
			if len(h) != len(sp.B) {
				c.replaceOpaque(sp, len(h), h)
			}
		case schema.Name:
			if status == nfs3.OK {
				status = checkNameV3(sp.B, in.Procedure == nfs3.ProcLookup)
			}
		case schema.Count:
			if n := lowerCount(in.Procedure, sp.Value, x.Signer.Overhead()); n != uint32(sp.Value) {
				binary.BigEndian.PutUint32(c.edits.Replace(sp.Pos, 4, 4), n)
			}
		}
	}
	if status != nfs3.OK {
		return c.failV3(in, status, failureLenV3[in.Procedure])
	}
	return Forward, nil
}

// checkNameV3 returns the status that refuses a name, or OK. "." is harmless in LOOKUP only.
func checkNameV3(name []byte, lookup bool) nfs3.Status {
	switch {
	case string(name) == ".." && lookup:
		return nfs3.ErrNoEnt
	case string(name) == "." && lookup:
		return nfs3.OK
	case len(name) == 0 || string(name) == ".." || string(name) == "." || bytes.IndexByte(name, '/') >= 0 || bytes.IndexByte(name, 0) >= 0:
		return nfs3.ErrInval
	default:
		return nfs3.OK
	}
}

// lowerCount lowers a count of the arguments so that the result stays below the original count when
// each handle in it grows by grow bytes.
func lowerCount(procedure uint32, count uint64, grow int) uint32 {
	count = min(count, nfs3.MaxData)
	if procedure == nfs3.ProcReaddirPlus {
		entries := (count + uint64(minEntryV3+grow) - 1) / uint64(minEntryV3+grow)
		count -= min(count, entries*uint64(grow))
	}
	return uint32(count)
}

// replaceOpaque replaces a counted opaque by one of n bytes, which begins with b. It returns the
// new bytes.
func (c *Call) replaceOpaque(sp *schema.Span, n int, b []byte) []byte {
	with := c.edits.Replace(sp.Pos, sp.Len, 4+xdr.Round(n))
	binary.BigEndian.PutUint32(with, uint32(n))
	clear(with[4+copy(with[4:], b):])
	return with[4 : 4+n]
}

// signHandle signs a handle in a result, which must have room for the tag.
func (c *Call) signHandle(s *sign.Signer, sp *schema.Span, limit int) {
	n, _ := s.Len(len(sp.B), limit)
	if n == len(sp.B) {
		return
	}
	s.Append(c.replaceOpaque(sp, n, nil)[:0], sp.B, limit)
}

// resultsV3 rewrites the results of NFS version 3. It reports whether it has answered the call
// itself.
func (c *Call) resultsV3(x *Export, in *oncrpc.Call) (bool, error) {
	p := schema.Proc{Program: in.Program, Version: in.Version, Procedure: in.Procedure}
	if err := c.walker.Results(p, &c.dec); err != nil {
		// without memory the reply stays empty
		_, _ = c.failV3(in, nfs3.ErrServerFault, failureLenV3[in.Procedure])
		return true, fmt.Errorf("rewrite: results of %s: %w", nfs3.ProcedureName(in.Procedure), err)
	}
	var entry *schema.Span // of the current spans
	isParent := false      // the entry is ".."
	replacedTo := 0        // end of the replaced bytes
	spans := c.walker.Spans
	for i := range spans {
		sp := &spans[i]
		if sp.Pos < replacedTo {
			continue
		}
		switch sp.Mark {
		case schema.Entry:
			entry, isParent = sp, false
		case schema.EntryName:
			if isParent = string(sp.B) == ".."; isParent && c.listsRoot {
				binary.BigEndian.PutUint64(c.edits.Replace(entry.Pos+4, 8, 8), c.rootFileID)
			}
		case schema.PostOpAttr:
			if isParent && sp.Value != 0 {
				replacedTo = c.omit(sp)
			}
		case schema.PostOpHandle:
			if sp.Value != 0 && (isParent || !canSign(x, spans[i+1:])) {
				replacedTo = c.omit(sp)
			}
		case schema.Handle:
			if !canSign(x, spans[i:]) {
				_, err := c.failV3(in, nfs3.ErrServerFault, failureLenV3[in.Procedure])
				return true, err
			}
			c.signHandle(x.Signer, sp, sign.Max3)
		case schema.Access:
			if c.readOnly && sp.Value&accessWritesV3 != 0 {
				binary.BigEndian.PutUint32(c.edits.Replace(sp.Pos, 4, 4), uint32(sp.Value)&^accessWritesV3)
			}
		case schema.Sizes:
			c.limitSizes(sp)
		}
	}
	return false, nil
}

// canSign reports whether the handle at the start of spans has room for a tag.
func canSign(x *Export, spans []schema.Span) bool {
	if len(spans) == 0 || spans[0].Mark != schema.Handle {
		return false
	}
	_, ok := x.Signer.Len(len(spans[0].B), sign.Max3)
	return ok
}

// omit clears an optional part of a result. It returns the end of the part.
func (c *Call) omit(sp *schema.Span) int {
	clear(c.edits.Replace(sp.Pos, sp.Len, 4))
	return sp.Pos + sp.Len
}

// limitSizes lowers FSINFO's sizes of READ, WRITE and READDIR to the gateway's limits.
func (c *Call) limitSizes(sp *schema.Span) {
	const multiples = 1<<2 | 1<<5 // of rtmult and wtmult, which are no sizes
	for i := range sp.Len / 4 {
		if v := binary.BigEndian.Uint32(sp.B[4*i:]); v > nfs3.MaxData && multiples>>i&1 == 0 {
			binary.BigEndian.PutUint32(c.edits.Replace(sp.Pos+4*i, 4, 4), nfs3.MaxData)
		}
	}
}
