package schema

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv3"
	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/xdr"
)

var markNames = map[Mark]string{
	Status: "status", Count: "count", DirCount: "dircount", Data: "data", Handle: "handle", Name: "name", Path: "path",
	Entry: "entry", EntryName: "entryname", PostOpAttr: "postopattr", PostOpHandle: "postophandle", FileID: "fileid", Sizes: "sizes",
	Access: "access", Listed: "listed", Minor: "minor", Operations: "operations", AttrMask: "attrmask", Attrs: "attrs", Attr: "attr",
	AttrsLen: "attrslen", ClientOwner: "clientowner", CallbackAddress: "callbackaddress", ServerOwner: "serverowner",
	ServerScope: "serverscope", ExchangeFlags: "exchangeflags", MaxRequestSize: "maxrequest", MaxResponseSize: "maxresponse",
	MaxResponseSizeCached: "maxcached", MaxOperations: "maxoperations", ShareAccess: "shareaccess", OpenType: "opentype",
	Claim: "claim", Style: "style", Flavors: "flavors", Flavor: "flavor", Sources: "sources",
}

// describe formats each span: its text, or its value, or its length.
func describe(spans []Span) string {
	var out []string
	for _, s := range spans {
		name := markNames[s.Mark]
		text := s.B
		switch s.Mark {
		case Handle, Name, Path, EntryName, ClientOwner, ServerOwner, ServerScope:
			out = append(out, fmt.Sprintf("%s=%s", name, text))
		case Entry, PostOpAttr, PostOpHandle:
			out = append(out, fmt.Sprintf("%s=%d+%d", name, s.Value, s.Len))
		case Listed, CallbackAddress, Sizes:
			out = append(out, fmt.Sprintf("%s+%d", name, s.Len))
		case Attr:
			out = append(out, fmt.Sprintf("%s%d=%x", name, s.Value, s.B))
		case AttrMask, Attrs:
			out = append(out, fmt.Sprintf("%s=%x", name, s.B))
		default:
			out = append(out, fmt.Sprintf("%s=%d", name, s.Value))
		}
	}
	return strings.Join(out, " ")
}

func encode(t testing.TB, m io.WriterTo) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// walkAll walks b to its end.
func walkAll(t testing.TB, p Proc, dir direction, b []byte) *Walker {
	t.Helper()
	var w Walker
	var d xdr.Decoder
	d.ResetBytes(b)
	if err := w.walk(p, &d, dir); err != nil || d.Left() > 0 {
		t.Fatalf("%v, %d bytes left", err, d.Left())
	}
	checkSpans(t, &w, b, 0, len(b))
	return &w
}

func fh(s string) nfsv3.NfsFh3 { return nfsv3.NfsFh3{Data: []byte(s)} }

func nfs3Proc(n uint32) Proc { return Proc{Program: nfsProgram, Version: 3, Procedure: n} }

func TestMarks3(t *testing.T) {
	where := nfsv3.Diropargs3{Dir: fh("dirhandle"), Name: "name"}
	attr := &nfsv3.PostOpAttr_TRUE{Attributes: nfsv3.Fattr3{Fileid: 77}}
	none := &nfsv3.PostOpAttr_FALSE{}
	handle := &nfsv3.PostOpFh3_TRUE{Handle: fh("h3")}
	wcc := nfsv3.WccData{Before: &nfsv3.PreOpAttr_FALSE{}, After: none}
	cases := []struct {
		procedure uint32
		dir       direction
		m         io.WriterTo
		want      string
	}{
		{1, arguments, &nfsv3.Getattr3args{Object: fh("abc")}, "handle=abc"},
		{1, results, &nfsv3.Getattr3res_NFS3_OK{Resok: nfsv3.Getattr3resok{ObjAttributes: nfsv3.Fattr3{Fileid: 9}}}, "status=0 fileid=9"},
		{3, arguments, &nfsv3.Lookup3args{What: where}, "handle=dirhandle name=name"},
		{
			3, results, &nfsv3.Lookup3res_NFS3_OK{Resok: nfsv3.Lookup3resok{Object: fh("obj"), ObjAttributes: attr, DirAttributes: attr}},
			"status=0 handle=obj postopattr=1+88 fileid=77 postopattr=1+88",
		},
		{3, results, &nfsv3.Lookup3res_default{Status: 2, Resfail: nfsv3.Lookup3resfail{DirAttributes: none}}, "status=2 postopattr=0+4"},
		{4, results, &nfsv3.Access3res_NFS3_OK{Resok: nfsv3.Access3resok{ObjAttributes: none, Access: 31}}, "status=0 postopattr=0+4 access=31"},
		{6, arguments, &nfsv3.Read3args{File: fh("f"), Offset: 5, Count: 4096}, "handle=f count=4096"},
		{7, arguments, &nfsv3.Write3args{File: fh("f"), Count: 3, Data: []byte("abc")}, "handle=f data=3"},
		{8, results, &nfsv3.Create3res_NFS3_OK{Resok: nfsv3.Create3resok{Obj: handle, ObjAttributes: attr, DirWcc: wcc}}, "status=0 postophandle=1+12 handle=h3 postopattr=1+88 postopattr=0+4"},
		{14, arguments, &nfsv3.Rename3args{From: where, To: nfsv3.Diropargs3{Dir: fh("d2"), Name: "n2"}}, "handle=dirhandle name=name handle=d2 name=n2"},
		{16, arguments, &nfsv3.Readdir3args{Dir: fh("d"), Count: 512}, "handle=d count=512"},
		{17, arguments, &nfsv3.Readdirplus3args{Dir: fh("d"), Dircount: 512, Maxcount: 8192}, "handle=d dircount=512 count=8192"},
		{
			16, results, &nfsv3.Readdir3res_NFS3_OK{Resok: nfsv3.Readdir3resok{DirAttributes: attr, Reply: nfsv3.Dirlist3{
				Entries: &nfsv3.Entry3{Fileid: 1, Name: ".", Nextentry: &nfsv3.Entry3{Fileid: 2, Name: "..x.."}},
			}}},
			"status=0 postopattr=1+88 fileid=77 entry=1+28 entryname=. entry=2+32 entryname=..x..",
		},
		{
			17, results, &nfsv3.Readdirplus3res_NFS3_OK{Resok: nfsv3.Readdirplus3resok{DirAttributes: none, Reply: nfsv3.Dirlistplus3{
				Entries: &nfsv3.Entryplus3{Fileid: 5, Name: "a", NameAttributes: attr, NameHandle: handle, Nextentry: &nfsv3.Entryplus3{
					Fileid: 6, Name: "b", NameAttributes: none, NameHandle: &nfsv3.PostOpFh3_FALSE{},
				}},
			}}},
			"status=0 postopattr=0+4 entry=5+128 entryname=a postopattr=1+88 postophandle=1+12 handle=h3 entry=6+36 entryname=b postopattr=0+4 postophandle=0+4",
		},
		{19, results, &nfsv3.Fsinfo3res_NFS3_OK{Resok: nfsv3.Fsinfo3resok{ObjAttributes: none}}, "status=0 postopattr=0+4 sizes+28"},
	}
	for _, c := range cases {
		w := walkAll(t, nfs3Proc(c.procedure), c.dir, encode(t, c.m))
		if got := describe(w.Spans); got != c.want {
			t.Errorf("procedure %d:\n%s\nmust be\n%s", c.procedure, got, c.want)
		}
	}
}

// cat encodes words, and counted opaques of strings.
func cat(vs ...any) (b []byte) {
	for _, v := range vs {
		switch v := v.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case uint64:
			b = binary.BigEndian.AppendUint64(b, v)
		case string:
			b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
			b = append(append(b, v...), make([]byte, xdr.Pad(len(v)))...)
		case []byte:
			b = append(b, v...)
		}
	}
	return b
}

func TestMarksMount(t *testing.T) {
	for _, c := range []struct {
		procedure uint32
		dir       direction
		b         []byte
		want      string
	}{
		{1, arguments, cat("/srv"), "path=/srv"},
		{1, results, cat(0, "hndl", 2, 1, 6), "status=0 handle=hndl"},
		{1, results, cat(13), "status=13"},
		{2, results, cat(1, "host", "/a", 1, "h", "/b", 0), "listed+20 listed+20"},
		{3, arguments, cat("/srv"), "path=/srv"},
		{5, results, cat(1, "/a", 1, "g", 0, 1, "/b", 0, 0), "listed+28 listed+16"},
	} {
		w := walkAll(t, Proc{Program: mountProgram, Version: 3, Procedure: c.procedure}, c.dir, c.b)
		if got := describe(w.Spans); got != c.want {
			t.Errorf("procedure %d: %s, must be %s", c.procedure, got, c.want)
		}
	}
}

func TestMarksACL(t *testing.T) {
	attr := append(cat(1), make([]byte, 84)...)
	entry := cat(1, 0, 6)
	acl := cat(15, 2, 2, entry, entry, 1, 1, entry)
	for _, c := range []struct {
		procedure uint32
		dir       direction
		b         []byte
		want      string
	}{
		{1, arguments, cat("file", 5), "handle=file"},
		{1, results, cat(0, attr, acl), "status=0 postopattr=1+88"},
		{1, results, cat(13, 0), "status=13 postopattr=0+4"},
		{2, arguments, cat("file", acl), "handle=file"},
		{2, results, cat(0, attr), "status=0 postopattr=1+88"},
		{2, results, cat(70, 0), "status=70 postopattr=0+4"},
	} {
		w := walkAll(t, Proc{Program: nfsaclProgram, Version: 3, Procedure: c.procedure}, c.dir, c.b)
		if got := describe(w.Spans); got != c.want {
			t.Errorf("procedure %d: %s, must be %s", c.procedure, got, c.want)
		}
	}
}

var compoundProc = Proc{Program: nfsProgram, Version: 4, Procedure: 1}

func TestMarks4Args(t *testing.T) {
	channel := func(n uint32) nfsv4.ChannelAttrs4 {
		return nfsv4.ChannelAttrs4{CaHeaderpadsize: 9, CaMaxrequestsize: n, CaMaxresponsesize: n + 1, CaMaxresponsesizeCached: n + 2, CaMaxoperations: n + 3, CaMaxrequests: 9}
	}
	created := nfsv4.Fattr4{Attrmask: []uint32{1 << 4}, AttrVals: cat(uint64(5))}
	for _, c := range []struct {
		op   nfsv4.NfsArgop4
		want string
	}{
		{&nfsv4.NfsArgop4_OP_PUTFH{Opputfh: nfsv4.Putfh4args{Object: []byte("h")}}, "handle=h"},
		{&nfsv4.NfsArgop4_OP_LOOKUP{Oplookup: nfsv4.Lookup4args{Objname: "n"}}, "name=n"},
		{&nfsv4.NfsArgop4_OP_RENAME{Oprename: nfsv4.Rename4args{Oldname: "a", Newname: "b"}}, "name=a name=b"},
		{&nfsv4.NfsArgop4_OP_GETATTR{Opgetattr: nfsv4.Getattr4args{AttrRequest: []uint32{1, 2}}}, "attrmask=0000000100000002"},
		{&nfsv4.NfsArgop4_OP_READ{Opread: nfsv4.Read4args{Count: 7}}, "count=7"},
		{&nfsv4.NfsArgop4_OP_WRITE{Opwrite: nfsv4.Write4args{Data: make([]byte, 7)}}, "data=7"},
		{&nfsv4.NfsArgop4_OP_READDIR{Opreaddir: nfsv4.Readdir4args{Dircount: 3, Maxcount: 4, AttrRequest: []uint32{1}}}, "dircount=3 count=4 attrmask=00000001"},
		{
			&nfsv4.NfsArgop4_OP_CREATE{Opcreate: nfsv4.Create4args{Objtype: &nfsv4.Createtype4_NF4LNK{Linkdata: []byte("to")}, Objname: "l", Createattrs: created}},
			"data=2 name=l attrs=00000010 attrslen=8",
		},
		{
			&nfsv4.NfsArgop4_OP_OPEN{Opopen: nfsv4.Open4args{
				ShareAccess: 3,
				Openhow:     &nfsv4.Openflag4_OPEN4_CREATE{How: &nfsv4.Createhow4_GUARDED4{Createattrs: created}},
				Claim:       &nfsv4.OpenClaim4_CLAIM_NULL{File: "f"},
			}},
			"shareaccess=3 opentype=1 attrs=00000010 attrslen=8 claim=0 name=f",
		},
		{
			&nfsv4.NfsArgop4_OP_VERIFY{Opverify: nfsv4.Verify4args{ObjAttributes: nfsv4.Fattr4{Attrmask: []uint32{1<<19 | 1<<20}, AttrVals: cat("hh", uint64(8))}}},
			"attrs=00180000 attrslen=16 attr19=0000000268680000 attr20=0000000000000008",
		},
		{
			&nfsv4.NfsArgop4_OP_SETCLIENTID{Opsetclientid: nfsv4.Setclientid4args{
				Client: nfsv4.NfsClientId4{Id: []byte("me")}, Callback: nfsv4.CbClient4{CbLocation: nfsv4.Netaddr4{NaRNetid: "tcp", NaRAddr: "1.2.3.4.0.1"}},
			}},
			"clientowner=me callbackaddress+24",
		},
		{
			&nfsv4.NfsArgop4_OP_EXCHANGE_ID{OpexchangeId: nfsv4.ExchangeId4args{
				EiaClientowner: nfsv4.ClientOwner4{CoOwnerid: []byte("me")}, EiaFlags: 6, EiaStateProtect: &nfsv4.StateProtect4A_SP4_NONE{},
			}},
			"clientowner=me exchangeflags=6",
		},
		{
			&nfsv4.NfsArgop4_OP_CREATE_SESSION{OpcreateSession: nfsv4.CreateSession4args{CsaForeChanAttrs: channel(10), CsaBackChanAttrs: channel(20)}},
			"maxrequest=10 maxresponse=11 maxcached=12 maxoperations=13 maxrequest=20 maxresponse=21 maxcached=22 maxoperations=23",
		},
		{&nfsv4.NfsArgop4_OP_SECINFO_NO_NAME{OpsecinfoNoName: 1}, "style=1"},
		{&nfsv4.NfsArgop4_OP_COPY{Opcopy: nfsv4.Copy4args{CaSourceServer: []nfsv4.Netloc4{&nfsv4.Netloc4_NL4_NAME{NlName: "n"}}}}, "sources=1"},
	} {
		b := encode(t, &nfsv4.Compound4args{Tag: "tag", Minorversion: 2, Argarray: []nfsv4.NfsArgop4{c.op}})
		w := walkAll(t, compoundProc, arguments, b)
		if got, want := describe(w.Spans), strings.TrimSpace("minor=2 operations=1 "+c.want); got != want {
			t.Errorf("%T:\n%s\nmust be\n%s", c.op, got, want)
		}
		if w.Spans[0].Op != -1 || w.Spans[0].Pos != 8 || w.Spans[1].Pos != 12 || w.Minor != 2 {
			t.Errorf("%+v", w.Spans[:2])
		}
	}
}

func TestMarks4Results(t *testing.T) {
	mask := []uint32{1<<1 | 1<<19 | 1<<20 | 1<<30, 1<<1 | 1<<23 | 1<<30, 1 << 11}
	vals := cat(1, "hnd", uint64(3), uint64(4096), 420, uint64(5), 1, 1, 2, 1, 7)
	file := nfsv4.Fattr4{Attrmask: mask, AttrVals: vals}
	const attrs = "attrs=401800024080000200000800 attrslen=60 attr19=00000003686e6400 attr20=0000000000000003 attr30=0000000000001000 " +
		"attr55=0000000000000005 attr62=0000000100000001 attr75=000000020000000100000007"
	for _, c := range []struct {
		op   nfsv4.NfsResop4
		want string
	}{
		{&nfsv4.NfsResop4_OP_ACCESS{Opaccess: &nfsv4.Access4res_NFS4_OK{Resok4: nfsv4.Access4resok{Supported: 31, Access: 3}}}, "status=0 access=3"},
		{&nfsv4.NfsResop4_OP_GETFH{Opgetfh: &nfsv4.Getfh4res_NFS4_OK{Resok4: nfsv4.Getfh4resok{Object: []byte("h")}}}, "status=0 handle=h"},
		{&nfsv4.NfsResop4_OP_GETFH{Opgetfh: &nfsv4.Getfh4res_default{Status: 10}}, "status=10"},
		{&nfsv4.NfsResop4_OP_READ{Opread: &nfsv4.Read4res_NFS4_OK{Resok4: nfsv4.Read4resok{Data: make([]byte, 5)}}}, "status=0 data=5"},
		{&nfsv4.NfsResop4_OP_READLINK{Opreadlink: &nfsv4.Readlink4res_NFS4_OK{Resok4: nfsv4.Readlink4resok{Link: []byte("to")}}}, "status=0 data=2"},
		{&nfsv4.NfsResop4_OP_SETATTR{Opsetattr: nfsv4.Setattr4res{Status: 13, Attrsset: []uint32{1}}}, "status=13"},
		{
			&nfsv4.NfsResop4_OP_READDIR{Opreaddir: &nfsv4.Readdir4res_NFS4_OK{Resok4: nfsv4.Readdir4resok{Reply: nfsv4.Dirlist4{
				Entries: &nfsv4.Entry4{Name: "a", Nextentry: &nfsv4.Entry4{Name: "b", Attrs: nfsv4.Fattr4{Attrmask: []uint32{1 << 20}, AttrVals: cat(uint64(1))}}},
			}}}},
			"status=0 entryname=a attrs= attrslen=0 entryname=b attrs=00100000 attrslen=8 attr20=0000000000000001",
		},
		{
			&nfsv4.NfsResop4_OP_EXCHANGE_ID{OpexchangeId: &nfsv4.ExchangeId4res_NFS4_OK{EirResok4: nfsv4.ExchangeId4resok{
				EirFlags: 5, EirStateProtect: &nfsv4.StateProtect4R_SP4_NONE{}, EirServerOwner: nfsv4.ServerOwner4{SoMajorId: []byte("major")}, EirServerScope: []byte("scope"),
			}}},
			"status=0 exchangeflags=5 serverowner=major serverscope=scope",
		},
		{
			&nfsv4.NfsResop4_OP_GETATTR{Opgetattr: &nfsv4.Getattr4res_NFS4_OK{Resok4: nfsv4.Getattr4resok{ObjAttributes: file}}},
			"status=0 " + attrs,
		},
	} {
		b := encode(t, &nfsv4.Compound4res{Tag: "t", Resarray: []nfsv4.NfsResop4{c.op}})
		w := walkAll(t, compoundProc, results, b)
		if diff := cmp.Diff("status=0 operations=1 "+c.want, describe(w.Spans)); diff != "" {
			t.Errorf("%T (-want +got):\n%s", c.op, diff)
		}
		if w.Ops[0].Status != uint32(w.Spans[2].Value) {
			t.Errorf("%+v", w.Ops[0])
		}
	}
}

func TestMarksCallbacks(t *testing.T) {
	p := Proc{Callback: true, Procedure: 1}
	for _, c := range []struct {
		op   nfsv4.NfsCbArgop4
		want string
	}{
		{&nfsv4.NfsCbArgop4_OP_CB_GETATTR{Opcbgetattr: nfsv4.CbGetattr4args{Fh: []byte("h"), AttrRequest: []uint32{8}}}, "handle=h attrmask=00000008"},
		{&nfsv4.NfsCbArgop4_OP_CB_RECALL{Opcbrecall: nfsv4.CbRecall4args{Fh: []byte("h")}}, "handle=h"},
		{&nfsv4.NfsCbArgop4_OP_CB_LAYOUTRECALL{Opcblayoutrecall: nfsv4.CbLayoutrecall4args{
			CloraRecall: &nfsv4.Layoutrecall4_LAYOUTRECALL4_FILE{LorLayout: nfsv4.LayoutrecallFile4{LorFh: []byte("h")}},
		}}, "handle=h"},
		{&nfsv4.NfsCbArgop4_OP_CB_NOTIFY{Opcbnotify: nfsv4.CbNotify4args{CnaFh: []byte("h")}}, "handle=h"},
		{&nfsv4.NfsCbArgop4_OP_CB_PUSH_DELEG{OpcbpushDeleg: nfsv4.CbPushDeleg4args{CpdaFh: []byte("h"), CpdaDelegation: &nfsv4.OpenDelegation4_OPEN_DELEGATE_NONE{}}}, "handle=h"},
		{&nfsv4.NfsCbArgop4_OP_CB_NOTIFY_LOCK{OpcbnotifyLock: nfsv4.CbNotifyLock4args{CnlaFh: []byte("h")}}, "handle=h"},
		{&nfsv4.NfsCbArgop4_OP_CB_OFFLOAD{Opcboffload: nfsv4.CbOffload4args{CoaFh: []byte("h"), CoaOffloadInfo: &nfsv4.OffloadInfo4_default{CoaStatus: 5}}}, "handle=h"},
	} {
		b := encode(t, &nfsv4.CbCompound4args{Tag: "t", Minorversion: 2, CallbackIdent: 1, Argarray: []nfsv4.NfsCbArgop4{c.op}})
		w := walkAll(t, p, arguments, b)
		if got, want := describe(w.Spans), "minor=2 operations=1 "+c.want; got != want {
			t.Errorf("%T:\n%s\nmust be\n%s", c.op, got, want)
		}
	}
}

// RFC 8276, RFC 8275 and RFC 9754, which the oracle lacks.
func TestNewer(t *testing.T) {
	stateid := make([]byte, 16)
	ace := cat(0, 0, 0, "who@x")
	opened := func(delegation ...any) []byte {
		return cat(OpOpen, 0, stateid, 0, uint64(1), uint64(2), 0, 1, 3, cat(delegation...))
	}
	fattr := func(n int, value []byte) []byte {
		mask := [3]int{}
		mask[n/32] = 1 << (n % 32)
		return cat(OpGetAttr, 0, 3, mask[0], mask[1], mask[2], len(value), value)
	}
	for _, c := range []struct {
		dir direction
		op  []byte
	}{
		{arguments, cat(OpGetXattr, "user.a")},
		{results, cat(OpGetXattr, 0, "value")},
		{results, cat(OpGetXattr, 10095)},
		{arguments, cat(OpSetXattr, 1, "user.a", "value")},
		{results, cat(OpSetXattr, 0, 1, uint64(1), uint64(2))},
		{arguments, cat(OpListXattrs, uint64(0), 4096)},
		{results, cat(OpListXattrs, 0, uint64(9), 2, "user.a", "user.b", 1)},
		{arguments, cat(OpRemoveXattr, "user.a")},
		{results, cat(OpRemoveXattr, 0, 1, uint64(1), uint64(2))},
		{results, opened(4, stateid, 0, ace)},
		{results, opened(5, stateid, 0, 1, uint64(100), ace)},
		{results, opened(5, stateid, 0, 2, 10, 512, ace)},
		{results, fattr(81, cat(0o644, 0o22))},
		{results, fattr(82, cat(1))},
		{results, fattr(83, cat(0))},
		{results, fattr(84, cat(uint64(1), 2))},
		{results, fattr(85, cat(uint64(1), 2))},
		{results, fattr(86, cat(1, 3, 1, 7, 1, 0, 2, 1, 2, 0))},
	} {
		head := cat("", 2, 1)
		if c.dir == results {
			head = cat(0, "", 1)
		}
		w := walkAll(t, compoundProc, c.dir, append(head, c.op...))
		if len(w.Ops) != 1 || w.Ops[0].End-w.Ops[0].Pos != len(c.op) {
			t.Errorf("%x: %+v", c.op, w.Ops)
		}
	}
}
