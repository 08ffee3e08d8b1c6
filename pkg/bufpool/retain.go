package bufpool

// retainedPart is the divisor for the part of a budget's total that may be retained.
const retainedPart = 8

// Retain counts n bytes kept beside the total: replies that may be needed again, and calls that
// wait for the memory of their replies. A negative n gives bytes back. The bound is an eighth of
// the total; see [Budget.Retainable].
func (b *Budget) Retain(n int64) { b.retained.Add(n) }

// TryRetain is Retain, unless it would exceed the bound.
func (b *Budget) TryRetain(n int64) bool {
	if b.retained.Add(n) > b.retainable.Load() {
		b.retained.Add(-n)
		return false
	}
	return true
}

// Retained returns the retained bytes.
func (b *Budget) Retained() int64 { return b.retained.Load() }

// Retainable returns the bytes that a connection may retain, which retains own bytes now: half of
// the bytes that the others leave. So n equal connections get an (n+1)th each, and a new one gets
// some.
func (b *Budget) Retainable(own int64) int64 {
	return max(0, b.retainable.Load()-b.retained.Load()+own) / 2
}
