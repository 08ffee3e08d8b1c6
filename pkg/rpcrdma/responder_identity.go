package rpcrdma

import (
	"hash/crc32"
)

// identityBytes is how much of a stream an identity is made of, at most. Eligible arguments do not
// count, nor what follows them.
const identityBytes = 256

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identify notes the identity of a call that has been decoded and planned. The handler may change
// the stream afterwards.
func (ic *inCall) identify() {
	left := identityBytes
	if len(ic.args) > 0 {
		left = min(left, ic.args[0].Position)
	}
	id := identity{program: ic.Program, version: ic.Version, procedure: ic.Procedure, length: ic.Message.Len()}
	for _, b := range ic.Stream {
		if left == 0 {
			break
		}
		b = b[:min(left, len(b))]
		left -= len(b)
		id.sum = crc32.Update(id.sum, castagnoli, b)
	}
	ic.identity = id
}
