package rewrite

import (
	"bytes"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// maxMountNames bounds the names of a mounted path: each costs a LOOKUP.
const maxMountNames = 64

// Flavors in the result of MNT, with those of Kerberos (RFC 2623 section 2.7) where GSS is
// permitted.
var (
	mountFlavors    = []uint32{oncrpc.AuthSys, oncrpc.AuthNone}
	mountFlavorsGSS = []uint32{oncrpc.AuthSys, 390003, 390004, 390005, oncrpc.AuthNone}
)

var mountExports = nfs3.ExportRes{Exports: []nfs3.Export{{Dir: []byte("/")}}}

// argsMount answers MOUNT: there is one export, "/", and an empty list of mounts.
func (c *Call) argsMount(x *Export, in *oncrpc.Call) (Verdict, error) {
	switch in.Procedure {
	case nfs3.MountProcMnt, nfs3.MountProcUmnt:
		var a nfs3.MountArgs
		c.dec.Reset(in.Stream, in.Items)
		c.dec.Skip(in.ArgsAt)
		if a.Decode(&c.dec); c.dec.Err() != nil || len(in.Items) > 0 {
			return c.garbageArgs(in)
		}
		if in.Procedure == nfs3.MountProcMnt {
			return c.argsMnt(x, in, a.Path)
		}
	case nfs3.MountProcDump:
		e, err := in.BeginReply(oncrpc.MinReplyLen + 4)
		if err != nil {
			return Answered, err
		}
		(&nfs3.DumpRes{}).Encode(e)
		in.EndReply()
		return Answered, nil
	case nfs3.MountProcExport:
		e, err := in.BeginReply(oncrpc.MinReplyLen + 20)
		if err != nil {
			return Answered, err
		}
		mountExports.Encode(e)
		in.EndReply()
		return Answered, nil
	}
	return c.answerStatus(in, oncrpc.Status{}) // UMNT and UMNTALL
}

// argsMnt answers MNT, or splits its path for Resolve.
func (c *Call) argsMnt(x *Export, in *oncrpc.Call, path []byte) (Verdict, error) {
	for len(path) > 0 {
		var name []byte
		name, path, _ = bytes.Cut(path, []byte("/"))
		if len(name) == 0 || string(name) == "." {
			continue
		}
		status := checkNameV3(name, true)
		if len(name) > nfs3.MaxName || len(c.Path) == maxMountNames {
			status = nfs3.ErrNameTooLong
		}
		if status != nfs3.OK {
			c.Path = c.Path[:0]
			return Answered, c.AnswerMount(in, nil, status)
		}
		c.Path = append(c.Path, name)
	}
	roots := x.Roots.Load()
	switch {
	case roots == nil || len(roots.V3) == 0 && !roots.NoMount:
		return Answered, ErrNoRoot
	case len(roots.V3) == 0:
		c.Path = c.Path[:0]
		return Answered, c.AnswerMount(in, nil, nfs3.ErrServerFault)
	case len(c.Path) > 0:
		return Resolve, nil
	default:
		return Answered, c.AnswerMount(in, roots.V3, nfs3.OK)
	}
}

// AnswerMount answers a MNT after Resolve, with the backend's handle of the directory or the status
// of the failed LOOKUP. An error means that memory is missing.
func (c *Call) AnswerMount(in *oncrpc.Call, handle []byte, status nfs3.Status) error {
	e, err := in.BeginReply(oncrpc.MinReplyLen + 4 + nfs3.HandleLen + 4 + 4*len(mountFlavorsGSS))
	if err != nil {
		return err
	}
	n, ok := c.x.Signer.Len(len(handle), sign.Max3)
	if status == nfs3.OK && !ok {
		status = nfs3.ErrServerFault
	}
	e.Uint32(uint32(mountStatus(status)))
	if status == nfs3.OK {
		e.Uint32(uint32(n))
		b := e.Grow((n + 3) &^ 3)
		clear(b[len(c.x.Signer.Append(b[:0], handle, sign.Max3)):])
		list := mountFlavors
		if c.x.GSS {
			list = mountFlavorsGSS
		}
		e.Uint32(uint32(len(list)))
		for _, f := range list {
			e.Uint32(f)
		}
	}
	in.EndReply()
	return nil
}

// mountStatus maps a status to the values of mountstat3 (RFC 1813 section 5.1.5).
func mountStatus(s nfs3.Status) nfs3.Status {
	switch s {
	case nfs3.OK, nfs3.ErrPerm, nfs3.ErrNoEnt, nfs3.ErrIO, nfs3.ErrAcces, nfs3.ErrNotDir, nfs3.ErrInval, nfs3.ErrNameTooLong, nfs3.ErrNotSupp:
		return s
	}
	return nfs3.ErrServerFault
}
