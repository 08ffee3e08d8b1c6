package rewrite

import (
	"testing"

	"sluice.dev/sluice/pkg/nfs/layout"
	"sluice.dev/sluice/pkg/nfs/seal"
)

func ok(code int, list ...any) raw { return op(code, append([]any{0}, list...)...) }

func putFH(handle []byte) raw { return op(layout.OpPutFH, handle) }

func lookup(name string) raw { return op(layout.OpLookup, name) }

// guard is what is inserted before a LOOKUPP.
func guard(handle []byte) raw {
	return op(layout.OpNVerify, fattr([]uint32{layout.AttrFileHandle}, handle))
}

// TestRootV4: the ways to the root lead to the export's root, and handles are sealed for the client only.
func TestRootV4(t *testing.T) {
	x := exportV4(t, seal.Required)
	for _, ex := range []exchange{
		{
			name:  "PUTROOTFH",
			call:  []raw{op(layout.OpPutRootFH), getFH},
			sent:  []raw{putFH(rootV4), getFH},
			reply: []raw{ok(layout.OpPutFH), ok(layout.OpGetFH, rootV4)},
			got:   []raw{ok(layout.OpPutRootFH), ok(layout.OpGetFH, x.sealed(rootV4))},
		},
		{
			name:  "PUTPUBFH",
			call:  []raw{op(layout.OpPutPubFH)},
			sent:  []raw{putFH(rootV4)},
			reply: []raw{ok(layout.OpPutFH)},
			got:   []raw{ok(layout.OpPutPubFH)},
		},
		{
			name:   "PUTROOTFH fails",
			call:   []raw{op(layout.OpPutRootFH), getFH},
			sent:   []raw{putFH(rootV4), getFH},
			status: 70, reply: []raw{op(layout.OpPutFH, 70)},
			gotStatus: 70, got: []raw{op(layout.OpPutRootFH, 70)},
		},
		{
			name:  "PUTFH",
			call:  []raw{putFH(x.sealed(someFH)), lookup("a"), getFH},
			sent:  []raw{putFH(someFH), lookup("a"), getFH},
			reply: []raw{ok(layout.OpPutFH), ok(layout.OpLookup), ok(layout.OpGetFH, []byte("another"))},
			got:   []raw{ok(layout.OpPutFH), ok(layout.OpLookup), ok(layout.OpGetFH, x.sealed([]byte("another")))},
		},
		{
			name:      "foreign handle",
			call:      []raw{putFH(someFH), lookup("a"), getFH},
			sent:      []raw{},
			reply:     []raw{},
			gotStatus: errBadHandle, got: []raw{op(layout.OpPutFH, errBadHandle)},
		},
	} {
		t.Run(ex.name, func(t *testing.T) { ex.run(t, x) })
	}
}
