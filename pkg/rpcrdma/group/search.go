package group

import "sluice.dev/sluice/pkg/rpcrdma/wire"

const (
	// mostTransmissions limits the length of a group.
	mostTransmissions = 1 << 12
	// mostWays limits the ways followed at the same time. Those with the most bulk data come first:
	// they leave the most options.
	mostWays = 16
	// mostVisits limits the visits of targets in a search, since a peer may have an odd layout. The
	// group may then be longer than necessary.
	mostVisits = 1 << 17
)

// search finds a layout of a message. The first target with bulk data describes a transmission: the
// bytes before it hold the header and the payload stream, which has no gaps. So less bulk data
// leaves more room for the payload stream. Most messages need no search: there is enough room with
// the bulk data first.
type search struct {
	next wire.Transmit // of continuations
	ways []way
}

// way is the beginning of a group.
type way struct {
	item    int // the first incomplete bulk item
	done    int // its placed bytes
	carried int // placed bytes of all items
	numbers int // buffer segment numbers used
	room    int // for the payload stream, minus the numbers in the first header
	first   int // part of room in the first transmission
	from    int // the way to the previous transmission
	target  int // start of bulk data in this one
}

// better reports whether a dominates b: bulk data ahead need no more targets later.
func (a *way) better(b *way) bool {
	return a.carried >= b.carried && a.room >= b.room && a.first >= b.first
}

func (p *Planner) whole(a *way) bool {
	return a.item == len(p.items) && a.room >= p.payload && a.first >= 0
}

// step adds a transmission to a. Its header has the given length without numbers, and its bulk data
// begin at target k.
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

// find chooses the transmissions of the group: the lengths of their headers, the first targets of
// their bulk data, and their parts of the payload stream. first is the length of the first header
// without numbers.
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

// bulkFirst fills every transmission with as much bulk data as fits. It leaves the transmissions
// with bulk data in p.group, or only the first. It returns their number, 0 if there is no end, and
// a lower bound of the number.
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

// explore searches a group of at most limit transmissions and returns its last way, -1 if none. It
// follows all ways in parallel, and drops a way if another is better or if too much would remain.
func (p *Planner) explore(to *Layout, first, limit int) int {
	limit = min(limit, mostTransmissions)
	all, targets := p.bytes(), 0 // bulk data, and the room for it in a continuation
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

func (p *Planner) bytes() (n int) {
	for _, i := range p.items {
		n += p.bulk[i].Length
	}
	return n
}

// keep adds w to the ways from begin on, unless one of them is better, and removes those worse than
// w.
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

// follow sets p.group to the transmissions of the way that ends with p.ways[last].
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

// share distributes the payload stream, as early as possible.
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
