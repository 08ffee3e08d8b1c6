package v1alpha1

import "slices"

// offers2 reports whether version 2 of RPC-over-RDMA is offered.
func (t *Transport) offers2() bool { return slices.Contains(t.RPCRDMAVersions, 2) }

func (t *Transport) validateVersions(r report) {
	switch v := t.RPCRDMAVersions; {
	case slices.Equal(v, []int{1}), slices.Equal(v, []int{2}), slices.Equal(v, []int{1, 2}):
	default:
		r.at("rpcRDMAVersions").refuse(v, "want [1], [2] or [1, 2]")
		return
	}
	r = r.at("extensions")
	if len(t.Extensions) > 0 && !t.offers2() {
		r.refuse(t.Extensions, "are of version 2: want rpcRDMAVersions: [1, 2], or leave them out")
		return
	}
	for i, x := range t.Extensions {
		switch {
		case x != TransportProperties:
			r.index(i).refuse(string(x), "want %s, the one extension that is offered", TransportProperties)
		case slices.Contains(t.Extensions[:i], x):
			r.index(i).refuse(string(x), "is there twice: want each extension once")
		}
	}
}
