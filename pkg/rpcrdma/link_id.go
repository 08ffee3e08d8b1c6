package rpcrdma

// IDs of work requests: the kind in the upper half, the index of its owner in the lower.
const (
	idReceive    uint64 = iota << 32
	idRead              // an RDMA Read for a call of the peer
	idAnswer            // the Send that answers it
	idRequest           // the Send of our call
	idInvalidate        // the invalidation of memory that our call exposed
	idRedirect          // the redirection of memory that a cancelled call exposed
	idControl           // the Send of a message that is about no call
	idFetch             // an RDMA Read of a reply; this and the next two are of RFC 5666 alone
	idDone              // RDMA_DONE
	idWithdraw          // the invalidation of a reply that the peer has read
	idGrant             // the Send of credits alone, in the working group's dialect of version 2
	idKind       = 0xffffffff_00000000
)

func idIndex(id uint64) uint32 { return uint32(id) }
