package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// addressRange includes its ends.
type addressRange struct{ first, last netip.Addr }

// pool lists virtual addresses in the order of the NFSGateway.
type pool []addressRange

// parsePool parses addresses, ranges and networks. It leaves invalid entries out, and returns a
// problem for each.
func parsePool(entries []string) (p pool, problems []string) {
	for i, e := range entries {
		r, err := parseRange(e)
		if err != nil {
			problems = append(problems, fmt.Sprintf("exposure.virtualIP.pool[%d]: %q: %v", i, e, err))
			continue
		}
		p = append(p, r)
	}
	return p, problems
}

func parseRange(s string) (r addressRange, err error) {
	errWant := errors.New("want an address, a range such as 192.0.2.10-192.0.2.40, or a network such as 192.0.2.64/26")
	if strings.Contains(s, "/") {
		n, err := netip.ParsePrefix(s)
		if err != nil {
			return r, errWant
		}
		r = networkRange(n.Masked())
		return r, usable(r)
	}
	a, b, two := strings.Cut(s, "-")
	if !two {
		b = a
	}
	first, err1 := netip.ParseAddr(strings.TrimSpace(a))
	last, err2 := netip.ParseAddr(strings.TrimSpace(b))
	if err1 != nil || err2 != nil || first.Zone() != "" || last.Zone() != "" {
		return r, errWant
	}
	r = addressRange{first.Unmap(), last.Unmap()}
	if r.first.Is4() != r.last.Is4() {
		return r, fmt.Errorf("begins and ends in two families: want one")
	}
	if r.last.Less(r.first) {
		return r, fmt.Errorf("ends before it begins: want %s-%s", r.last, r.first)
	}
	return r, usable(r)
}

// networkRange returns a network without its first and last address. They are the network and
// broadcast addresses of IPv4, and anycast addresses of IPv6 (RFC 4291 section 2.6.1, RFC 2526). A
// network of one or two addresses stays whole.
func networkRange(n netip.Prefix) addressRange {
	b := n.Addr().AsSlice()
	for bit := n.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	r := addressRange{n.Addr(), last}
	if n.Addr().BitLen()-n.Bits() > 1 {
		r.first, r.last = r.first.Next(), r.last.Prev()
	}
	return r
}

// usable refuses addresses that no host can have.
func usable(r addressRange) error {
	for _, a := range []netip.Addr{r.first, r.last} {
		if !a.IsGlobalUnicast() {
			return fmt.Errorf("%s is no address that clients can reach: want those of the network's subnet", a)
		}
	}
	return nil
}

func (p pool) contains(a netip.Addr) bool {
	for _, r := range p {
		if a.BitLen() == r.first.BitLen() && !a.Less(r.first) && !r.last.Less(a) {
			return true
		}
	}
	return false
}

// use returns the size of the pool, and its use by exports. Addresses of two entries count twice.
func (p pool) use(exports []Export) (u PoolUse) {
	for _, r := range p {
		size := 1.0
		first, last := r.first.As16(), r.last.As16()
		scale := 1.0
		for i := len(first) - 1; i >= 0; i-- {
			size += scale * (float64(last[i]) - float64(first[i]))
			scale *= 256
		}
		u.Size += size
	}
	for i := range exports {
		if a, err := netip.ParseAddr(exports[i].VIP); err == nil && p.contains(a) {
			u.Used++
		}
	}
	return u
}

// cursor is a position in a pool. The zero value is the start.
type cursor struct {
	entry int
	at    netip.Addr // in that entry; zero: its first address
}

// free returns the first address from the cursor on that is neither taken nor busy. The cursor
// moves past taken addresses, which must stay taken. So many searches look at each address once,
// apart from busy ones.
func (p pool) free(c *cursor, taken, busy func(netip.Addr) bool) (netip.Addr, bool) {
	first := true // no busy address was skipped
	for now := *c; now.entry < len(p); now = (cursor{entry: now.entry + 1}) {
		r := p[now.entry]
		if !now.at.IsValid() {
			now.at = r.first
		}
		for {
			switch used := taken(now.at); {
			case !used && !busy(now.at):
				return now.at, true
			case !used:
				first = false
			}
			if now.at == r.last {
				break
			}
			now.at = now.at.Next()
			if first {
				*c = now
			}
		}
		if first {
			*c = cursor{entry: now.entry + 1}
		}
	}
	return netip.Addr{}, false
}
