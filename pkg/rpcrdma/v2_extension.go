package rpcrdma

import (
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// extension is an extension of version 2: operations of RDMA2_OPTIONAL, and the handler of their
// messages.
type extension struct {
	*wire.Extension
	// take handles a complete message that is no part of a group; cp is its completion. It owns ic
	// then, and recycles or answers it. It returns false if the connection lacks the extension, or
	// for other messages. recvMu is held.
	take func(g *groupReceiver, ic *inCall, cp *rdma.Completion) bool
}

// extensions is the list of all extensions. To add one: a file that makes an extension, and its
// line here.
var extensions = []extension{
	{&wire.RoundTrip, (*groupReceiver).takeReport},
}

// knownExtensions returns the parsers of all extensions.
func knownExtensions() *wire.Extensions {
	list := new(wire.Extensions)
	for i := range extensions {
		*list = append(*list, extensions[i].Extension)
	}
	return list
}

// extend handles an operation. It returns false if no extension does.
func (g *groupReceiver) extend(ic *inCall, cp *rdma.Completion) bool {
	for i := range extensions {
		if e := &extensions[i]; e.First <= ic.hdr.Operation && ic.hdr.Operation <= e.Last {
			return e.take(g, ic, cp)
		}
	}
	return false
}

// takeReport handles Report Error. The other operations of the round-trip extension are parts of
// groups, or not offered.
func (g *groupReceiver) takeReport(ic *inCall, cp *rdma.Completion) bool {
	if ic.hdr.Operation != wire.ReptErr || !g.grouped {
		return false
	}
	g.handleReport(ic, cp)
	return true
}
