package rpcrdma

import (
	"sync"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// negotiator is the role that sends and takes messages which belong to no RPC: version 2's choice, and transport properties. They cost no
// credit; receives in reserve are there for them. Each side has one exchange outstanding at most.
//
// A client chooses the version so, with the first message, and one credit:
//
//	RDMA2_CONNPROP ->  <- RDMA2_CONNPROP               version 2, and the properties of both sides
//	RDMA2_CONNPROP ->  <- RDMA2_ERROR INVALID_OPTION   version 2, with defaults
//	RDMA2_CONNPROP ->  <- RDMA_ERROR ERR_VERS          version 1, on the same connection
//	RDMA2_CONNPROP ->  the connection ends, or silence  version 1, on another connection
//
// Without the extension, the first message is a NULL call of program 0 instead, which any server answers.
type negotiator struct {
	*link
	out           *requester
	prepareGroups func() error
	chosen        chan struct{} // at a client: closed when the version is settled

	// These are changed with the loop held.
	values    wire.Values // the peer's properties
	gotProps  bool        // the peer has sent RDMA2_CONNPROP
	sentProps bool        // this side has
	mutable   uint32      // bit n: the peer may change property n
	shrunk    int         // the size of receives that the peer knows, 0 if it is the one configured
	growing   int         // the size that they have from now on, 0 if it is that
	declined  bool        // the peer has been told that there are no properties
	announced bool        // who waits for the version has been told
	refusal   error       // why the choice of the version failed

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

// badReply is a reply that is to be reported.
type badReply struct {
	xid    wire.XID
	report wire.Report
}

func (k *negotiator) init(l *link, out *requester, prepareGroups func() error) {
	k.link, k.out, k.prepareGroups, k.chosen = l, out, prepareGroups, make(chan struct{})
}
