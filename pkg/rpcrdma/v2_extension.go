package rpcrdma

import (
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// extension is one of version 2: operations of RDMA2_OPTIONAL, and what becomes of their messages.
type extension struct {
	*wire.Extension
	// take handles a message, which has come in full and is no part of a group; cp is its completion. It is the owner of ic then: it recycles
	// ic, or has it answered. It returns false if the connection does not have the extension, or a message of this kind. The loop is held.
	take func(g *groupReceiver, ic *inCall, cp *rdma.Completion) bool
}

// extensions are all that there are. To add one: a file that makes an extension, and its line here.
var extensions = []extension{
	{&wire.RoundTrip, (*groupReceiver).takeReport},
}

// knownExtensions is what headers are parsed with.
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

// takeReport handles Report Error. The other operations of the round-trip extension are parts of groups, or not offered.
func (g *groupReceiver) takeReport(ic *inCall, cp *rdma.Completion) bool {
	if ic.hdr.Operation != wire.ReptErr || !g.grouped {
		return false
	}
	g.reported(ic, cp)
	return true
}
