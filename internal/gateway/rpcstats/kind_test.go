package rpcstats

import (
	"math/bits"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// TestKind checks that calls with different latencies have different kinds.
func TestKind(t *testing.T) {
	call := func(program, version, procedure uint32, in, out int) *oncrpc.Call {
		c := &oncrpc.Call{Program: program, Version: version, Procedure: procedure}
		c.Stream, c.Items = [][]byte{make([]byte, 100)}, []xdr.Item{{Length: in}}
		c.Reply.Stream, c.Reply.Items = [][]byte{make([]byte, 100)}, []xdr.Item{{Length: out}}
		return c
	}
	seen := map[int]int{}
	for i, c := range []*oncrpc.Call{
		call(nfs3.Program, 3, nfs3.ProcGetAttr, 0, 0),
		call(nfs3.Program, 3, nfs3.ProcLookup, 0, 0),
		call(nfs3.Program, 3, nfs3.ProcRead, 0, 0),
		call(nfs3.Program, 3, nfs3.ProcRead, 0, 16<<10),
		call(nfs3.Program, 3, nfs3.ProcRead, 0, 64<<10),
		call(nfs3.Program, 3, nfs3.ProcRead, 0, 1<<20),
		call(nfs3.Program, 3, nfs3.ProcWrite, 1<<20, 0),
		call(nfs3.Program, 3, nfs3.ProcCommit, 0, 0),
		call(nfs3.Program, nfs4Version, 1, 0, 0),
		call(nfs3.Program, nfs4Version, 1, 0, 1<<20),
		call(nfs3.Program, nfs4Version, 1, 1<<20, 0),
		call(nfs3.MountProgram, 3, 1, 0, 0),
		call(nfs3.Program, 3, 21, 1<<(bits.UintSize-8), 0),
	} {
		k := Kind(c)
		if j, ok := seen[k]; ok || k < 0 || k >= kindRows*kindSizes {
			t.Errorf("calls %d and %d are of kind %d", i, j, k)
		}
		seen[k] = i
	}
	if a, b := Kind(call(nfs3.Program, 3, nfs3.ProcRead, 0, 70<<10)), Kind(call(nfs3.Program, 3, nfs3.ProcRead, 0, 200<<10)); a != b {
		t.Errorf("READs of 70 and 200 KiB are of kinds %d and %d", a, b)
	}
	if n := testing.AllocsPerRun(100, func() { Kind(call3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var call3 = &oncrpc.Call{Program: nfs3.Program, Version: 3, Procedure: nfs3.ProcRead}
