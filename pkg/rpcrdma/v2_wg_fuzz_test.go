package rpcrdma

import (
	"testing"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// FuzzResponderWG is FuzzResponder with a server of the working group's dialect.
func FuzzResponderWG(f *testing.F) {
	const (
		final, external, middle, inline = 7, 8, 9, 10

		limit = 1 << 20
	)
	segment := words(5, 100, append([]byte(nil), fuzzMark...))
	first := words(1, 2, limit, final, 2, 1, 4, 4096, 2, 4, 4096)
	null := words(9, 2, limit, inline, 0, 0, 0, 0, rpcCall(9, procNull))
	whole := rpcCall(2, procPlain, 0, 5000)
	f.Add(packMessages(first, null))
	f.Add(packMessages(words(1, 2, limit, 6, 1, 6, 4, 0), first, null))
	f.Add(packMessages(null, null))
	f.Add(packMessages(first, words(2, 2, limit, middle, len(whole)-4, whole[:4]), words(0, 2, limit, 5),
		words(2, 2, limit, middle, len(whole)-12, whole[4:12]), words(2, 2, limit, inline, 0, 0, 0, 0, whole[12:]), null))
	f.Add(packMessages(first, words(2, 2, limit, middle, len(whole)-4, whole[:4]), null, words(2, 2, limit, inline, 0, 0, 0, 0, whole[4:])))
	f.Add(packMessages(first, words(2, 2, limit, external, 5, 1, 0, segment, 0, 0, 0, 1, 1, segment), null))
	f.Add(packMessages(first, words(2, 2, limit, inline, 5, 1, 48, segment, 0, 0, 0, rpcCall(2, procMove, moveArgs([]int{100}))), null))
	f.Add(packMessages(first, words(2, 2, limit, inline, 0, 0, 1, 1, segment, 0, 0, rpcCall(2, procMove, moveArgs(nil, 100))), null))
	f.Add(packMessages(first, words(2, 2, 3, 11, 0, 1, 1, segment), words(2, 2, 3, 12, 4, 2), words(2, 2, 3, 13, 0), words(2, 2, 2, 4, 6, 1), null))
	fuzzResponder(f, wire.V2WorkingGroup)
}
