package rpcrdma

import (
	"sync"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// negotiator is the role for messages about no RPC: the choice of version 2, and transport
// properties. They cost no credit; spare receives are there for them. Each side has one exchange
// outstanding at most.
//
// A client chooses the version with the first message, and one credit:
//
//	RDMA2_CONNPROP ->  <- RDMA2_CONNPROP               version 2, and the properties of both sides
//	RDMA2_CONNPROP ->  <- RDMA2_ERROR INVALID_OPTION   version 2, with defaults
//	RDMA2_CONNPROP ->  <- RDMA_ERROR ERR_VERS          version 1, on the same connection
//	RDMA2_CONNPROP ->  the connection ends, or silence  version 1, on another connection
//
// Without the extension, the first message is a NULL call of program 0, which any server answers.
type negotiator struct {
	*link
	out           *requester
	prepareGroups func() error
	chosen        chan struct{} // at a client: closed when the version is known

	// The following are changed with recvMu held.
	values    wire.Values   // the peer's properties
	wgValues  wire.WGValues // the same in the working group's dialect
	gotMiddle bool          // the peer has sent a part of its properties there
	gotProps  bool          // the peer has sent RDMA2_CONNPROP
	sentProps bool          // this side has sent it
	mutable   uint32        // bit n: the peer may change property n
	// the size of receives that the peer knows, if it is smaller than configured; else 0
	shrunk    int
	growing   int   // the size of receives to come, if the peer does not know it yet; else 0
	declined  bool  // the peer knows that there are no properties
	announced bool  // the waiting client has been woken
	refusal   error // why no version was chosen

	mu     sync.Mutex
	head   *bufpool.Buf
	local  [2][]byte
	batch  sendBatch
	busy   bool // the Send has not completed
	xid    wire.XID
	awaits bool // of the message with xid
	timer  *time.Timer
	// reports wait for the answer to another message; no calls are sent meanwhile.
	reports []badReply
}

type badReply struct {
	xid    wire.XID
	report wire.Report
}

func (k *negotiator) init(l *link, out *requester, prepareGroups func() error) {
	k.link, k.out, k.prepareGroups, k.chosen = l, out, prepareGroups, make(chan struct{})
	k.wgValues = wire.DefaultWGValues
}
