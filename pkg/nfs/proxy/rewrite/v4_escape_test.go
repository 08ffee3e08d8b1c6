package rewrite

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// node is a directory of the modelled servers.
type node struct {
	id     byte
	parent *node
	names  []string
	nodes  []*node
}

// tree is a file system. Nodes 0 to 9 are above the export.
type tree struct {
	nodes map[byte]*node
	root  *node
}

func newTree() *tree {
	t := &tree{nodes: map[byte]*node{}}
	t.root = t.add(0, nil, "")
	t.add(1, t.root, "other")
	vol := t.add(2, t.root, "vol")
	t.add(3, vol, "sibling")
	export := t.add(10, vol, "export")
	a := t.add(11, export, "a")
	b := t.add(12, a, "b")
	t.add(13, b, "c")
	t.add(14, export, "b")
	return t
}

func (t *tree) add(id byte, parent *node, name string) *node {
	n := &node{id: id, parent: parent}
	t.nodes[id] = n
	if parent != nil {
		parent.names, parent.nodes = append(parent.names, name), append(parent.nodes, n)
	}
	return n
}

// fs is a server of a tree with one of its nodes as root.
type fs struct {
	tree *tree
	root *node
	// handle names a node for clients; find is the reverse.
	handle func(*node) []byte
	find   func([]byte) *node
	// touched has the nodes on which operations have worked.
	touched []*node
}

// serve answers the generated COMPOUNDs.
func (s *fs) serve(call []byte) []byte {
	var in oncrpc.Call
	in.Stream = append(in.Stream, call)
	if err := oncrpc.DecodeCall(&in); err != nil {
		panic(err)
	}
	d := in.Args()
	d.Opaque(maxTag)
	d.Uint32() // minor version
	var cur, saved *node
	var results []raw
	status := uint32(0)
	for n := d.Uint32(); n > 0 && status == 0; n-- {
		code := d.Uint32()
		var more raw
		status, more = s.op(code, d, &cur, &saved)
		if status != 0 {
			more = nil
		}
		results = append(results, slices.Concat(fields(code, status), more))
	}
	if err := d.Err(); err != nil {
		panic(err)
	}
	return resultsOf(int(status), results...)
}

const (
	errNotSameAny = 10027
)

func (s *fs) op(code uint32, d *xdr.Decoder, cur, saved **node) (status uint32, more raw) {
	switch code {
	case schema.OpSequence:
		d.Skip(32)
		return 0, sequenceOK[8:]
	case schema.OpPutRootFH, schema.OpPutPubFH:
		*cur = s.root
		return 0, nil
	case schema.OpPutFH:
		n := s.find(d.Opaque(sign.Max4))
		if n == nil {
			return errBadHandle, nil
		}
		*cur = n
		return 0, nil
	case schema.OpRestoreFH:
		if *saved == nil {
			return errNoFileHandle, nil
		}
		*cur = *saved
		return 0, nil
	}
	name := ""
	if code == schema.OpLookup {
		name = d.String(255)
		// the gateway checks the name first
		if st := checkNameV4([]byte(name)); st != 0 && s.root.id == 10 {
			return st, nil
		}
	}
	if *cur == nil {
		return errNoFileHandle, nil
	}
	s.touched = append(s.touched, *cur)
	switch code {
	case schema.OpSaveFH:
		*saved = *cur
	case schema.OpLookup:
		i := slices.Index((*cur).names, name)
		switch {
		case name == "..":
			*cur = (*cur).parent // a server in its worst form
		case i < 0:
			return errNoEnt, nil
		default:
			*cur = (*cur).nodes[i]
		}
	case schema.OpLookupP:
		if *cur == s.root || (*cur).parent == nil {
			return errNoEnt, nil
		}
		*cur = (*cur).parent
		s.touched = append(s.touched, *cur)
	case schema.OpGetFH:
		return 0, fields(s.handle(*cur))
	case schema.OpGetAttr:
		d.Skip(8)
		return 0, fattr([]uint32{aFH}, s.handle(*cur))
	case schema.OpVerify, schema.OpNVerify:
		d.Skip(12)
		same := bytes.Equal(d.Opaque(sign.Max4), s.handle(*cur))
		if same && code == schema.OpNVerify {
			return errSame, nil
		}
		if !same && code == schema.OpVerify {
			return errNotSameAny, nil
		}
	case schema.OpSecInfoNoName:
		if d.Uint32() == styleParent && *cur == s.root {
			return errNoEnt, nil
		}
		if *cur != nil {
			*cur = nil
		}
		return 0, fields(1, 1)
	}
	return 0, nil
}

// TestEscape checks that whatever a client sends, the backend works only inside the export, and the
// client sees a server whose root is the export.
func TestEscape(t *testing.T) {
	x := exportV4(t, sign.Required)
	other, err := sign.New([][]byte{bytes.Repeat([]byte{7}, sign.MinKey)}, []byte("another export"), sign.Required)
	if err != nil {
		t.Fatal(err)
	}
	tree := newTree()
	plain := func(n *node) []byte { return []byte{'h', 'a', 'n', 'd', 'l', 'e', n.id} }
	find := func(h []byte) *node {
		if len(h) != 7 || !bytes.Equal(h[:6], []byte("handle")) {
			return nil
		}
		return tree.nodes[h[6]]
	}
	export := tree.nodes[10]
	x.Roots.Store(&Roots{V4: plain(export), No3: true})
	inside := func(n *node) bool { return n.id >= 10 }
	one := func(rt *rapid.T, ops []raw) {
		call := compoundV4(2, slices.Concat([]raw{sequence}, ops)...)

		backend := &fs{tree: tree, root: tree.root, handle: plain, find: find}
		var c Call
		in := arrived(t, slices.Clone(call))
		sent, _ := sendV4(t, &c, x, &Caller{}, in)
		checkSent(rt, sent)
		got := answerV4(t, &c, x, in, backend.serve(sent))
		for _, n := range backend.touched {
			if !inside(n) {
				rt.Fatalf("the backend worked at node %d for\n%x", n.id, sent)
			}
		}

		local := &fs{tree: tree, root: export,
			handle: func(n *node) []byte { return x.signed(plain(n)) },
			find: func(h []byte) *node {
				h, ok := x.Signer.Verify(h, sign.Max4)
				if !ok {
					return nil
				}
				return find(h)
			},
		}
		want := local.serve(call)
		// Only the gateway limits root checks: the answer is its own.
		if status := binary.BigEndian.Uint32(got[24:]); status == errTooManyOps {
			return
		}
		if !bytes.Equal(got, want) {
			rt.Fatalf("the client gets\n%x, want\n%x for\n%x, which became\n%x", got, want, call, sent)
		}

		// The same call is rewritten the same way.
		again := arrived(t, slices.Clone(call))
		if twice, _ := sendV4(t, &c, x, &Caller{}, again); !bytes.Equal(twice, sent) {
			rt.Fatalf("the second time\n%x, the first time\n%x", twice, sent)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		handle := rapid.Custom(func(t *rapid.T) []byte {
			ids := []byte{0, 2, 3, 10, 11, 12, 13, 14, 14}
			h := plain(tree.nodes[rapid.SampledFrom(ids).Draw(t, "node")])
			switch rapid.OneOf(rapid.Just("signed"), rapid.Just("signed"), rapid.Just("signed"), rapid.SampledFrom([]string{"plain", "foreign", "cut", "forged"})).Draw(t, "kind") {
			case "signed":
				if h[6] < 10 {
					h[6] += 10 // nobody has got the others
				}
				return x.signed(h)
			case "foreign":
				return other.Append(nil, h, sign.Max4)
			case "cut":
				return x.signed(h)[:7+rapid.IntRange(0, 7).Draw(t, "length")]
			case "forged":
				b := x.signed(h)
				b[rapid.IntRange(7, 14).Draw(t, "byte")] ^= 1
				return b
			}
			return h
		})
		operation := rapid.Custom(func(t *rapid.T) raw {
			switch rapid.SampledFrom([]uint32{
				schema.OpPutRootFH, schema.OpPutPubFH, schema.OpPutFH, schema.OpPutFH, schema.OpLookup, schema.OpLookup, schema.OpLookupP, schema.OpLookupP, schema.OpLookupP, schema.OpLookupP,
				schema.OpSaveFH, schema.OpRestoreFH, schema.OpGetFH, schema.OpGetAttr, schema.OpVerify, schema.OpNVerify, schema.OpSecInfoNoName,
			}).Draw(t, "op") {
			case schema.OpPutRootFH:
				return putRootFH
			case schema.OpPutPubFH:
				return op(schema.OpPutPubFH)
			case schema.OpPutFH:
				return putFH(handle.Draw(t, "handle"))
			case schema.OpLookup:
				return lookup(rapid.SampledFrom([]string{"a", "a", "b", "b", "b", "c", "c", "export", "..", "a/b"}).Draw(t, "name"))
			case schema.OpLookupP:
				return lookupP
			case schema.OpSaveFH:
				return saveFH
			case schema.OpRestoreFH:
				return restoreFH
			case schema.OpGetFH:
				return getFH
			case schema.OpGetAttr:
				return getAttr(aFH)
			case schema.OpVerify:
				return op(schema.OpVerify, fattr([]uint32{aFH}, x.signed(plain(tree.nodes[10+rapid.Byte().Draw(t, "node")%5]))))
			case schema.OpNVerify:
				return op(schema.OpNVerify, fattr([]uint32{aFH}, x.signed(plain(tree.nodes[10+rapid.Byte().Draw(t, "node")%5]))))
			default:
				return op(schema.OpSecInfoNoName, 0)
			}
		})
		for range 10 {
			one(rt, rapid.SliceOfN(operation, 0, 12).Draw(rt, "operations"))
		}
	})
}

// checkSent checks the backend's call.
func checkSent(t *rapid.T, sent []byte) {
	in := oncrpc.Call{}
	in.Stream = append(in.Stream, sent)
	if err := oncrpc.DecodeCall(&in); err != nil {
		t.Fatal(err)
	}
	var w schema.Walker
	d := in.Args()
	if err := w.Args(compoundProc, d); err != nil || d.Left() > 0 {
		t.Fatalf("the backend gets %x: %v", sent, err)
	}
	for _, s := range w.Spans {
		handle := s.B
		switch {
		case s.Mark == schema.Name && checkNameV4(s.B) != 0:
			t.Fatalf("the backend gets the name %q", s.B)
		case s.Mark == schema.Attr && s.Value == aFH:
			handle = opaqueBytes(s.B)
		case s.Mark != schema.Handle:
			continue
		}
		if len(handle) != 7 {
			t.Fatalf("the backend gets the handle %x", handle)
		}
	}
	for _, op := range w.Ops {
		if op.Code == schema.OpPutRootFH || op.Code == schema.OpPutPubFH {
			t.Fatalf("the backend gets operation %d", op.Code)
		}
	}
}
