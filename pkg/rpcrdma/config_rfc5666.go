package rpcrdma

import (
	"fmt"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// RFC5666 is a set of the forms of version 1 that only RFC 5666 has. RFC 8166 took them away; they
// are for peers that are older, and for tests of such.
type RFC5666 uint8

const (
	// Padding receives RDMA_MSGP, with padding before long opaques; a client sends it too, and
	// offers room for the round-up of results.
	Padding RFC5666 = 1 << iota

	// ReadRead lets the client read a reply for which its call has no room. A server exposes its
	// memory for that; a client offers none to the server.
	ReadRead

	// Configuration is the Connection Configuration Protocol. A client asks with its first call.
	Configuration

	allRFC5666 = Padding | ReadRead | Configuration
)

// completeRFC5666 checks these forms.
func (cfg *Config) completeRFC5666() error {
	if extra := cfg.RFC5666 &^ allRFC5666; extra != 0 {
		return fmt.Errorf("rpcrdma: Config.RFC5666 has %#x, which is none", uint8(extra))
	}
	if cfg.RFC5666 != 0 && !cfg.offers(wire.Version1) {
		return fmt.Errorf("rpcrdma: Config.RFC5666 is %#x, it needs version 1", uint8(cfg.RFC5666))
	}
	cfg.Limits.Padded, cfg.Limits.Done = cfg.RFC5666&Padding != 0, cfg.RFC5666&ReadRead != 0
	return nil
}
