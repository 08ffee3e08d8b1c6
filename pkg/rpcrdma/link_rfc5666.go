package rpcrdma

import (
	"sync/atomic"

	"sluice.dev/sluice/pkg/rpcrdma/padded"
)

// rfc5666 is the state of a connection with forms that only RFC 5666 has.
type rfc5666 struct {
	// align is the alignment of padded calls from here; 0: none are padded.
	align      atomic.Int32
	spare      [][]byte    // for the stream of a padded message; used with recvMu held
	readRead   atomic.Bool // calls from here leave it to the server to expose replies
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

func (s *rfc5666) isConfigured() bool { return s != nil && s.configured.Load() }
