package rpcstats

import (
	"math/bits"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

const (
	kindOther   = nfs3.Procedures // after the procedures of NFSv3
	kindReads4  = kindOther + 1   // COMPOUND with a longer reply
	kindWrites4 = kindOther + 2   // COMPOUND with a longer call
	kindRows    = kindOther + 3
	kindSizes   = 5
)

var _ [credit.Kinds - kindRows*kindSizes]struct{} // each kind fits credit.Kinds

// Kind returns the kind of a call, below credit.Kinds. Calls of a kind have a similar latency: they
// have the same procedure, as far as that is known, and a similar size in steps of four.
func Kind(c *oncrpc.Call) int {
	in, out := MessageSize(&c.Message), MessageSize(&c.Reply)
	row := kindOther
	switch i, p := findProgram(c.Program, c.Version, c.Procedure); {
	case p == nil:
	case programs[i].version == nfs4Version && in > out:
		row = kindWrites4
	case programs[i].version == nfs4Version:
		row = kindReads4
	case i == 0:
		row = int(c.Procedure)
	}
	size := (bits.Len(uint(in+out)>>12) + 1) / 2 // up to 4 KiB, 16 KiB, and so on
	return row*kindSizes + min(size, kindSizes-1)
}

// MessageSize returns the bytes of a message, with its bulk data.
func MessageSize(m *oncrpc.Message) (n int) {
	for _, s := range m.Stream {
		n += len(s)
	}
	for i := range m.Items {
		n += m.Items[i].Length
	}
	return n
}
