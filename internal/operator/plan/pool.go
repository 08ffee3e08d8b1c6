package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// addressRange is from its first to its last address.
type addressRange struct{ first, last netip.Addr }

// pool is what virtual addresses are taken from, in the order in which it was written.
type pool []addressRange

// parsePool reads single addresses, ranges and networks. What is wrong is left out of the pool, and told.
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

// networkRange is a network without its first and last address, which of IPv4 are the network's own and broadcast, and of IPv6 the routers' anycast and
// those reserved for anycast (RFC 4291 section 2.6.1, RFC 2526). Networks of one or two addresses have no such.
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

// usable refuses what no host can have.
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

// cursor is a place in a pool; the zero value is its beginning.
type cursor struct {
	entry int
	at    netip.Addr // in that entry; not valid: its first address
}

// free returns the pool's first address, from the cursor on, that is neither taken nor busy. The cursor moves behind those that are taken, which they have to stay:
// so a search for each of many exports looks at every address once, beside those that are busy.
func (p pool) free(c *cursor, taken, busy func(netip.Addr) bool) (netip.Addr, bool) {
	first := true // nothing was passed over that the next search has to look at
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
