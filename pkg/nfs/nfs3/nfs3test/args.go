package nfs3test

import (
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func u32(t *rapid.T) uint32 { return rapid.Uint32().Draw(t, "u32") }
func u64(t *rapid.T) uint64 { return rapid.Uint64().Draw(t, "u64") }
func yes(t *rapid.T) bool   { return rapid.Bool().Draw(t, "bool") }

func opaque(t *rapid.T, least, most int) []byte {
	return rapid.SliceOfN(rapid.Byte(), least, most).Draw(t, "opaque")
}

func handle(t *rapid.T) nfs3.Handle { return opaque(t, 0, nfs3.MaxHandle) }

// text is ASCII, which other implementations of XDR require in strings.
func text(t *rapid.T, least, most int) []byte {
	return rapid.SliceOfN(rapid.ByteRange(0, 127), least, most).Draw(t, "text")
}

// name is sometimes longer than a server allows.
func name(t *rapid.T) []byte {
	if rapid.IntRange(0, 20).Draw(t, "long") == 0 {
		return text(t, 256, 400)
	}
	return text(t, 0, 24)
}

// pieces cuts data into up to three slices.
func pieces(t *rapid.T, data []byte) ([][]byte, int) {
	a := rapid.IntRange(0, len(data)).Draw(t, "cut")
	b := rapid.IntRange(a, len(data)).Draw(t, "cut")
	var out [][]byte
	for _, p := range [][]byte{data[:a], data[a:b], data[b:]} {
		if len(p) > 0 {
			out = append(out, p)
		}
	}
	return out, len(data)
}

func verifier(t *rapid.T) (v nfs3.Verifier) {
	copy(v[:], opaque(t, 8, 8))
	return v
}

func time(t *rapid.T) nfs3.Time {
	return nfs3.Time{Sec: u32(t), Nsec: rapid.Uint32Range(0, 999_999_999).Draw(t, "nsec")}
}

func fileType(t *rapid.T) nfs3.Type {
	return nfs3.Type(rapid.Uint32Range(1, 7).Draw(t, "type"))
}

func handleArgs(t *rapid.T) nfs3.HandleArgs { return nfs3.HandleArgs{Object: handle(t)} }

func dirOpArgs(t *rapid.T) nfs3.DirOpArgs { return nfs3.DirOpArgs{Dir: handle(t), Name: name(t)} }

func setAttrs(t *rapid.T) (s nfs3.SetAttrs) {
	if s.SetMode = yes(t); s.SetMode {
		s.Mode = u32(t)
	}
	if s.SetUID = yes(t); s.SetUID {
		s.UID = u32(t)
	}
	if s.SetGID = yes(t); s.SetGID {
		s.GID = u32(t)
	}
	if s.SetSize = yes(t); s.SetSize {
		s.Size = u64(t)
	}
	s.AtimeHow = nfs3.TimeHow(rapid.Uint32Range(0, 2).Draw(t, "how"))
	if s.AtimeHow == nfs3.SetToClientTime {
		s.Atime = time(t)
	}
	s.MtimeHow = nfs3.TimeHow(rapid.Uint32Range(0, 2).Draw(t, "how"))
	if s.MtimeHow == nfs3.SetToClientTime {
		s.Mtime = time(t)
	}
	return s
}

func setAttrArgs(t *rapid.T) nfs3.SetAttrArgs {
	a := nfs3.SetAttrArgs{Object: handle(t), New: setAttrs(t), Guard: yes(t)}
	if a.Guard {
		a.GuardCtime = time(t)
	}
	return a
}

func accessArgs(t *rapid.T) nfs3.AccessArgs {
	return nfs3.AccessArgs{Object: handle(t), Access: u32(t)}
}

func readArgs(t *rapid.T) nfs3.ReadArgs {
	return nfs3.ReadArgs{File: handle(t), Offset: u64(t), Count: u32(t)}
}

func writeArgs(t *rapid.T) nfs3.WriteArgs {
	a := nfs3.WriteArgs{File: handle(t), Offset: u64(t), Stable: stability(t)}
	data, n := pieces(t, opaque(t, 0, 300))
	a.Data, a.Count = data, uint32(n)
	return a
}

func stability(t *rapid.T) nfs3.Stability {
	return nfs3.Stability(rapid.Uint32Range(0, 2).Draw(t, "stable"))
}

func createArgs(t *rapid.T) nfs3.CreateArgs {
	a := nfs3.CreateArgs{Where: dirOpArgs(t), Mode: nfs3.CreateMode(rapid.Uint32Range(0, 2).Draw(t, "mode"))}
	if a.Mode == nfs3.Exclusive {
		a.Verf = verifier(t)
	} else {
		a.Attrs = setAttrs(t)
	}
	return a
}

func mkdirArgs(t *rapid.T) nfs3.MkdirArgs {
	return nfs3.MkdirArgs{Where: dirOpArgs(t), Attrs: setAttrs(t)}
}

func symlinkArgs(t *rapid.T) nfs3.SymlinkArgs {
	a := nfs3.SymlinkArgs{Where: dirOpArgs(t), Attrs: setAttrs(t)}
	a.Path, a.Length = pieces(t, text(t, 0, 300))
	return a
}

func mknodArgs(t *rapid.T) nfs3.MknodArgs {
	a := nfs3.MknodArgs{Where: dirOpArgs(t), Type: fileType(t)}
	switch a.Type {
	case nfs3.Chr, nfs3.Blk:
		a.Attrs, a.Spec = setAttrs(t), nfs3.SpecData{Major: u32(t), Minor: u32(t)}
	case nfs3.Sock, nfs3.FIFO:
		a.Attrs = setAttrs(t)
	}
	return a
}

func renameArgs(t *rapid.T) nfs3.RenameArgs {
	return nfs3.RenameArgs{From: dirOpArgs(t), To: dirOpArgs(t)}
}

func linkArgs(t *rapid.T) nfs3.LinkArgs {
	return nfs3.LinkArgs{File: handle(t), Link: dirOpArgs(t)}
}

func readdirArgs(t *rapid.T) nfs3.ReaddirArgs {
	return nfs3.ReaddirArgs{Dir: handle(t), Cookie: u64(t), Verf: verifier(t), Count: u32(t)}
}

func readdirPlusArgs(t *rapid.T) nfs3.ReaddirPlusArgs {
	return nfs3.ReaddirPlusArgs{Dir: handle(t), Cookie: u64(t), Verf: verifier(t), DirCount: u32(t), MaxCount: u32(t)}
}

func commitArgs(t *rapid.T) nfs3.CommitArgs { return nfs3.CommitArgs(readArgs(t)) }

func mountArgs(t *rapid.T) nfs3.MountArgs { return nfs3.MountArgs{Path: text(t, 0, 40)} }
