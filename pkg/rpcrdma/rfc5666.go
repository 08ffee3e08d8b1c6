package rpcrdma

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"sluice.dev/sluice/pkg/rpcrdma/padded"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// RFC5666 is a set of the forms of version 1 that only RFC 5666 has. RFC 8166 took them away; they
// are for peers that are older, and for tests of such.
type RFC5666 uint8

const (
	// Padding receives RDMA_MSGP, with padding before long opaques; a client sends it too.
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
	if cfg.RFC5666&Configuration != 0 {
		cfg.Handler = &configurator{cfg.Handler}
	}
	return nil
}

// rfc5666 is the state of a connection with such forms.
type rfc5666 struct {
	// align is the alignment of padded calls from here; 0: none are padded.
	align      atomic.Int32
	spare      [][]byte    // for the stream of a padded message; used with recvMu held
	readRead   atomic.Bool // calls from here leave it to the server to expose replies
	exposed    exposedReplies
	configured atomic.Bool // by the Connection Configuration Protocol
	noReads    bool        // at a server: the client bears no RDMA Reads; used with recvMu held
}

func newRFC5666(cfg *Config, server bool) *rfc5666 {
	if cfg.RFC5666 == 0 {
		return nil
	}
	s := new(rfc5666)
	if !server && cfg.RFC5666&(Padding|Configuration) == Padding {
		s.align.Store(padded.MaxAlign)
	}
	s.readRead.Store(!server && cfg.RFC5666&ReadRead != 0)
	return s
}

// retry decides whether a call is sent again without the forms that the peer may not have. The peer
// has answered ERR_CHUNK to version 1.
func (o *outCall) retryOldForms(e *RemoteError) bool {
	s, b := o.out.rfc5666, &o.build
	switch {
	case e.Code != wire.ErrChunk:
		return false
	case b.padding != (padded.Rule{}):
		s.align.Store(0)
	case b.omitted:
		s.readRead.Store(false)
	default:
		return false
	}
	return true
}

func (s *rfc5666) isConfigured() bool { return s != nil && s.configured.Load() }

// alignFor is the alignment for messages of at most limit bytes: an eighth of it, and a page at
// most, so that padding seldom prevents a message from fitting.
func alignFor(limit int) int {
	return min(1<<(bits.Len(uint(limit/8))-1), padded.MaxAlign)
}
