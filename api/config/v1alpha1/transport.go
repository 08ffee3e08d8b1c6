package v1alpha1

import (
	"math/bits"
	"slices"
)

func (t *Transport) offers2() bool { return slices.Contains(t.RPCRDMAVersions, 2) }

func (t *Transport) offers(x Extension) bool { return slices.Contains(t.Extensions, x) }

// ReceiveSize returns the size of the largest receives of a connection.
func (t *Transport) ReceiveSize() Quantity {
	size := t.InlineThreshold.Call
	if t.offers2() {
		size = max(size, 4<<10)
	}
	if t.Placement != nil {
		size += t.Placement.ReceiveBuffer
	}
	return size
}

func (t *Transport) validateVersions(r report) {
	switch v := t.RPCRDMAVersions; {
	case slices.Equal(v, []int{1}), slices.Equal(v, []int{2}), slices.Equal(v, []int{1, 2}):
	default:
		r.at("rpcRDMAVersions").refuse(v, "want [1], [2] or [1, 2]")
		return
	}
	t.validateRFC5666(r.at("rfc5666"))
	if d, rd := t.Version2Dialect, r.at("version2Dialect"); d != "" {
		oneOf(rd, d, RoundTrip, WorkingGroup)
		if !t.offers2() {
			rd.refuse(string(d), "is of version 2: want rpcRDMAVersions: [1, 2], or leave it out")
		}
	}
	rx := r.at("extensions")
	if len(t.Extensions) > 0 && t.Version2Dialect == WorkingGroup {
		rx.refuse(t.Extensions, "are of dialect RoundTrip: want version2Dialect: RoundTrip, or leave them out")
		return
	}
	if len(t.Extensions) > 0 && !t.offers2() {
		rx.refuse(t.Extensions, "are of version 2: want rpcRDMAVersions: [1, 2], or leave them out")
		return
	}
	for i, x := range t.Extensions {
		oneOf(rx.index(i), x, TransportProperties, MessageContinuation, SendBasedPlacement)
		if slices.Contains(t.Extensions[:i], x) {
			rx.index(i).refuse(string(x), "is listed twice: want each extension once")
		}
		if (x == MessageContinuation || x == SendBasedPlacement) && !t.offers(TransportProperties) {
			rx.index(i).refuse(string(x), "needs %s: want both", TransportProperties)
		}
	}
	if c, rc := t.Continuation, r.at("continuation"); c != nil {
		t.needs(rc, MessageContinuation)
		between(rc.at("maxCallTransmissions"), c.MaxCallTransmissions, 1, 256)
		between(rc.at("maxReplyTransmissions"), c.MaxReplyTransmissions, 1, 256)
	}
	if p, rp := t.Placement, r.at("placement"); p != nil {
		t.needs(rp, SendBasedPlacement)
		if n := p.ReceiveBuffer; n < 4<<10 || n > 1<<20 || bits.OnesCount64(uint64(n)) != 1 {
			rp.at("receiveBuffer").refuse(n, "want a power of two from 4Ki to 1Mi")
		}
		between(rp.at("minLength"), p.MinLength, 1, 1<<20)
	}
}

func (t *Transport) validateRFC5666(r report) {
	if len(t.RFC5666) > 0 && !slices.Contains(t.RPCRDMAVersions, 1) {
		r.refuse(t.RFC5666, "are of version 1: want rpcRDMAVersions: [1] or [1, 2], or leave them out")
	}
	checkForms(r, t.RFC5666)
}

func checkForms(r report, forms []RFC5666Form) {
	for i, x := range forms {
		oneOf(r.index(i), x, Padding, ReadRead, Configuration)
		if slices.Contains(forms[:i], x) {
			r.index(i).refuse(string(x), "is listed twice: want each form once")
		}
	}
}

// needs refuses a field whose extension is not offered.
func (t *Transport) needs(r report, x Extension) {
	if !t.offers(x) {
		r.refuse(nil, "is only for extension %s: leave it out", x)
	}
}
