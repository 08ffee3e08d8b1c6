package group

import "sluice.dev/sluice/pkg/rpcrdma/wire"

const (
	// mostTransmissions bounds what find counts.
	mostTransmissions = 1 << 12
	// mostWays bounds the ways that are followed up at the same time. Those with the most bulk data come first: they leave the most open.
	mostWays = 16
	// mostVisits bounds how often targets are looked at for that: a peer may have an odd layout. A group may be longer then than need be.
	mostVisits = 1 << 17
)

// search finds how to lay a message out. A transmission is described by the target where its bulk data begin: what is before it belongs to
// the header and the payload stream, which goes without gaps. So the less bulk data a transmission takes, the more of the payload
// stream. Most messages need no search, since taking bulk data first leaves room enough.
type search struct {
	next wire.Transmit // of continuations
	ways []way
}

// way is a beginning of a group.
type way struct {
	item    int // the first bulk item that is not whole
	done    int // bytes of it
	carried int // bytes of all items
	numbers int // buffer segment numbers used
	room    int // for the payload stream, less what the numbers take in the first header
	first   int // of that, in the first transmission
	from    int // the way to the transmission before
	target  int // where bulk data begin in this one
}

// better tells that nothing is to be gained from b that is not from a: what more bulk data leave needs no more targets.
func (a *way) better(b *way) bool {
	return a.carried >= b.carried && a.room >= b.room && a.first >= b.first
}

// whole tells that a carries everything.
func (p *Planner) whole(a *way) bool {
	return a.item == len(p.items) && a.room >= p.payload && a.first >= 0
}

// step adds a transmission to a, whose header has the given length without numbers, and whose bulk data begin at target k.
func (p *Planner) step(a way, to *Layout, header, k int, first bool) way {
	room := (to.at(k) - header) &^ 3
	a.room += room
	if first {
		a.first = room
	}
	for j := k; j < len(to.Targets) && a.item < len(p.items); j++ {
		a.numbers++
		a.room -= 4
		a.first -= 4
		size := p.bulk[p.items[a.item]].Length
		n := min(to.target(j).Length, size-a.done)
		a.carried += n
		if a.done += n; a.done == size {
			a.item, a.done = a.item+1, 0
		}
	}
	a.target = k
	return a
}

// find decides on the transmissions of the group: their headers' lengths, where their bulk data begin, and how much of the payload stream each has. first
// is the length of the first header without numbers.
func (p *Planner) find(to *Layout, first, limit int) error {
	if first > to.Size {
		return &FitError{Limit: limit, reason: "its header is longer than a receive buffer"}
	}
	if len(p.items) > 0 && to.behind(ContinueSize) == len(to.Targets) && to.behind(first) == len(to.Targets) {
		return &FitError{Limit: limit, reason: "there is no target for its bulk data"}
	}
	count, least := p.bulkFirst(to, first)
	if (count == 0 || count > least) && len(to.Targets) > 1 {
		most := limit
		if count > 0 {
			most = min(limit, count-1)
		}
		if last := p.explore(to, first, most); last >= 0 {
			p.follow(last)
			p.share(to, first)
			return nil
		}
	}
	if count == 0 {
		return &FitError{Limit: limit, reason: "receive buffers are too small"}
	}
	if count > limit {
		return &FitError{Needed: count, Limit: limit}
	}
	for len(p.group) < count {
		p.group = append(p.group, Transmission{first: len(to.Targets)})
	}
	p.share(to, first)
	return nil
}

// bulkFirst lets every transmission take as many bulk data as it can, and leaves in p.group the ones that have any, or the first. It returns
// how many there are to be, 0 if there is no end to it, and a number that cannot be undercut.
func (p *Planner) bulkFirst(to *Layout, first int) (count, least int) {
	guess := 0
	if n := to.longest(); n > 0 {
		for _, i := range p.items {
			guess += (p.bulk[i].Length + n - 1) / n
		}
	}
	if room := to.Size - ContinueSize; room > 0 {
		least = (first + 4*guess - ContinueSize + p.payload + p.bytes() + room - 1) / room
	}
	continued, exact := to.behind(ContinueSize), true
	var w way
	for {
		k := len(to.Targets)
		if len(p.items) > 0 {
			k = to.behind(first + 4*guess)
		}
		w = p.step(way{}, to, first, k, true)
		p.group = append(p.group[:0], Transmission{first: k})
		for w.item < len(p.items) {
			if len(p.group) == mostTransmissions || continued == len(to.Targets) {
				return 0, least
			}
			w = p.step(w, to, ContinueSize, continued, false)
			p.group = append(p.group, Transmission{first: continued})
		}
		if w.numbers <= guess && w.first >= 0 {
			break
		}
		if w.numbers <= guess {
			return 0, least // the first header alone does not fit
		}
		guess, exact = w.numbers, false
	}
	count = len(p.group)
	if exact {
		least = max(least, count)
	}
	if rest := p.payload - w.room; rest > 0 {
		room := (to.Size - ContinueSize) &^ 3
		if room <= 0 || (rest+room-1)/room > mostTransmissions-count {
			return 0, least
		}
		count += (rest + room - 1) / room
	}
	return count, least
}

// explore looks for a group of at most limit transmissions, and returns its last way, -1 if there is none. It follows all
// ways at once, and gives up one when another is better, or when what it leaves is too much.
func (p *Planner) explore(to *Layout, first, limit int) int {
	limit = min(limit, mostTransmissions)
	all, targets := p.bytes(), 0 // bulk data, and what a continuation can take of them
	for k := to.behind(ContinueSize); k < len(to.Targets); k++ {
		targets += to.target(k).Length
	}
	p.ways = append(p.ways[:0], way{from: -1})
	begin, visits := 0, 0
	for t := range limit {
		header, left := ContinueSize, limit-t-1
		if t == 0 {
			header = first
		}
		end := len(p.ways)
		for i := begin; i < end; i++ {
			k := to.behind(header)
			if p.ways[i].item == len(p.items) {
				k = len(to.Targets)
			}
			for ; k <= len(to.Targets) && header <= to.at(k); k++ {
				w := p.step(p.ways[i], to, header, k, t == 0)
				w.from = i
				visits += len(to.Targets) - k + mostWays
				if p.whole(&w) {
					p.ways = append(p.ways, w)
					return len(p.ways) - 1
				}
				bulk := all - w.carried
				if w.first >= 0 && bulk <= left*targets && bulk+max(p.payload-w.room, 0) <= left*(to.Size-ContinueSize) {
					p.keep(end, w)
				}
			}
		}
		begin = end
		if visits > mostVisits {
			break
		}
	}
	return -1
}

// bytes returns how many bytes of bulk data there are.
func (p *Planner) bytes() (n int) {
	for _, i := range p.items {
		n += p.bulk[i].Length
	}
	return n
}

// keep adds w to the ways from begin on, unless one of them is better, and removes those that w is better than.
func (p *Planner) keep(begin int, w way) {
	n := begin
	for i := begin; i < len(p.ways); i++ {
		if p.ways[i].better(&w) {
			return
		}
		if !w.better(&p.ways[i]) {
			p.ways[n] = p.ways[i]
			n++
		}
	}
	p.ways = p.ways[:n]
	if n-begin < mostWays {
		p.ways = append(p.ways, w)
	}
}

// follow puts the transmissions of the way that ends with p.ways[last] into p.group.
func (p *Planner) follow(last int) {
	n := 0
	for i := last; p.ways[i].from >= 0; i = p.ways[i].from {
		n++
	}
	p.group = p.group[:0]
	for range n {
		p.group = append(p.group, Transmission{})
	}
	for i := last; p.ways[i].from >= 0; i = p.ways[i].from {
		n--
		p.group[n].first = p.ways[i].target
	}
}

// share deals the payload stream out, as early as there is room for it.
func (p *Planner) share(to *Layout, first int) {
	var w way
	for t := range p.group {
		x := &p.group[t]
		x.header = ContinueSize
		if t == 0 {
			x.header = first
		}
		w = p.step(w, to, x.header, x.first, t == 0)
	}
	p.group[0].header += 4 * w.numbers
	left := p.payload
	for t := range p.group {
		x := &p.group[t]
		x.Payload = min(left, (to.at(x.first)-x.header)&^3)
		left -= x.Payload
	}
}
