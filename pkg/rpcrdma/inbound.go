package rpcrdma

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// inbound is a message that arrived. It may turn out to be a call, a reply, or neither.
type inbound struct {
	hdr     wire.Header
	message [][]byte        // as received
	payload *oncrpc.Message // its part behind the header; whoever replaces it owns the old one
	v2      bool            // it is of version 2
	// receives that it stands for until it is answered; 0 if it costs no credit
	held int

	xmt     bool  // it came as a group: by XMTREQ or XMTRESP
	origins []int // of a group: for each item, its index in the header
}
