package group

import "sluice.dev/sluice/pkg/rpcrdma/internal/split"

// place distributes payload stream and bulk data over the transmissions that find chose. It leaves
// room for the headers.
func (p *Planner) place(to *Layout) {
	p.gather, p.numbers, p.counts = p.gather[:0], p.numbers[:0], p.counts[:0]
	stream := split.Of(p.out)
	var bulk bulkReader
	bulk.begin(p)
	for t := range p.group {
		x := &p.group[t]
		x.at = len(p.gather)
		p.gather = append(p.gather, nil)
		p.gather, _ = stream.Take(p.gather, x.Payload)
		// within the transmission; its last run bytes are still to be taken from the item
		end, run := x.header+x.Payload, 0
		for k := x.first; k < len(to.Targets) && bulk.left > 0; k++ {
			seg := to.target(k)
			if seg.At > end {
				p.gather = bulk.flush(p.gather, &run)
				p.gather = p.pad(p.gather, seg.At-end)
			}
			n := min(seg.Length, bulk.left)
			run, end = run+n, seg.At+n
			p.numbers = append(p.numbers, uint32(t*len(to.Targets)+k))
			p.counts[len(p.counts)-1]++
			if bulk.left -= n; bulk.left == 0 {
				p.gather = bulk.flush(p.gather, &run)
				bulk.begin(p)
			}
		}
		p.gather = bulk.flush(p.gather, &run)
		x.n = len(p.gather) - x.at
	}
}

func (p *Planner) pad(dst [][]byte, n int) [][]byte {
	for n > 0 {
		k := min(n, len(p.zeros))
		dst, n = append(dst, p.zeros[:k:k]), n-k
	}
	return dst
}

// bulkReader reads the data of the SendBased items in sequence.
type bulkReader struct {
	next int // index in Planner.items
	left int // unplaced bytes of the current item, 0 after the last
	data split.Pieces
}

func (r *bulkReader) begin(p *Planner) {
	if r.next < len(p.items) {
		i := p.items[r.next]
		r.next++
		r.left, r.data = p.bulk[i].Length, split.Of(p.Data(i))
		p.counts = append(p.counts, 0)
	}
}

// flush takes the run bytes already placed.
func (r *bulkReader) flush(dst [][]byte, run *int) [][]byte {
	dst, _ = r.data.Take(dst, *run)
	*run = 0
	return dst
}

// limit selects the slices of a transmission to be joined so that at most most remain: the
// neighbours with the fewest bytes.
func (x *Transmission) limit(list [][]byte, most int) {
	x.many, x.copied = 0, 0
	if len(list) <= most {
		return
	}
	x.many = len(list) - most + 1
	sum := x.header
	for i, s := range list {
		sum += len(s)
		if i < x.many-1 {
			continue
		}
		if i == x.many-1 || sum < x.copied {
			x.join, x.copied = i-x.many+1, sum
		}
		if i == x.many-1 {
			sum -= x.header
		}
		sum -= len(list[i-x.many+1])
	}
}
