package bufpool

// retainedPart is which part of a budget's total may be retained.
const retainedPart = 8

// Retain counts n bytes that are kept beside the total: replies that may be wanted once more, and calls that wait for the
// memory of their replies. A negative n gives bytes back. They are bounded by an eighth of the total; see
// [Budget.Retainable].
func (b *Budget) Retain(n int64) { b.retained.Add(n) }

// TryRetain does as Retain, unless that is more than may be retained.
func (b *Budget) TryRetain(n int64) bool {
	if b.retained.Add(n) > b.retainable.Load() {
		b.retained.Add(-n)
		return false
	}
	return true
}

// Retained returns how many bytes are retained.
func (b *Budget) Retained() int64 { return b.retained.Load() }

// Retainable returns how many bytes a connection may retain that retains own bytes now: half of what the others have
// left over, so that n equal connections have an (n+1)th each, and something is left for one that begins.
func (b *Budget) Retainable(own int64) int64 {
	return max(0, b.retainable.Load()-b.retained.Load()+own) / 2
}
