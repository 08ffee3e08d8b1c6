package gateway

import (
	"math"
	"math/bits"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// An export's credits. Policy Static is policy Adaptive with one number for both limits, and memory without end: so each can follow the other
// while connections stay.

// newCredits returns the policy of an export that is not served yet.
func newCredits() *credit.Adaptive {
	t := config.DefaultExport().Transport
	p, err := credit.NewAdaptive(creditLimits(&t), nil)
	if err != nil {
		panic(err) // the defaults are right
	}
	return p
}

func creditLimits(t *config.Transport) credit.Limits {
	c := &t.Credits
	l := credit.Limits{Min: c.Min, Max: c.Max, Memory: int64(c.Memory), ReceiveSize: int(t.ReceiveSize())}
	if c.Policy == config.Static {
		l.Min, l.Memory = c.Max, math.MaxInt64
	}
	return l
}

// setCredits makes the credits those of t. They hold for the next answers.
func (e *export) setCredits(t *config.Transport) {
	if err := e.credits.SetLimits(creditLimits(t)); err != nil {
		e.log.Error("the credits stay as they are", "error", err)
	}
}

func (e *export) creditStatus(t *config.Transport) *status.Credits {
	st := e.credits.Stats()
	s := &status.Credits{Policy: t.Credits.Policy, Granted: st.Granted, Receives: st.Promised, Shared: int(e.stats.shared.Load()), Max: st.Max}
	if s.Policy == config.Adaptive {
		s.Adaptive = &status.Adaptive{Min: st.Min, Ceiling: st.Ceiling, Memory: st.Memory, Changes: map[string]status.CreditChanges{}}
		for r := range credit.Reasons {
			s.Changes[r.String()] = status.CreditChanges{Raised: st.Raised[r], Lowered: st.Lowered[r]}
		}
	}
	return s
}

func (e *export) collectCredits(counter counterFunc, gauge gaugeFunc) {
	st := e.credits.Stats()
	gauge(receivesDesc, float64(st.Promised), "promised")
	if st.Memory < math.MaxInt64 {
		gauge(receivesDesc, float64(st.Memory), "limit")
	}
	gauge(sharedDesc, float64(e.stats.shared.Load()))
	gauge(ceilingDesc, float64(st.Ceiling))
	for r := range credit.Reasons {
		counter(regrantsDesc, st.Raised[r], r.String(), "raised")
		counter(regrantsDesc, st.Lowered[r], r.String(), "lowered")
	}
}

const (
	kindOther   = nfs3.Procedures // after the procedures of NFSv3
	kindReads4  = kindOther + 1   // COMPOUND, with more in the reply
	kindWrites4 = kindOther + 2   // COMPOUND, with more in the call
	kindRows    = kindOther + 3
	kindSizes   = 5
)

var _ [credit.Kinds - kindRows*kindSizes]struct{} // all kinds have a place

// kind tells calls apart by how long they are expected to take: by procedure, as far as that is known, and by the size of call and
// reply in steps of four.
func kind(c *oncrpc.Call) int {
	in, out := messageSize(&c.Message), messageSize(&c.Reply)
	row := kindOther
	switch i, p := find(c.Program, c.Version, c.Procedure); {
	case p == nil:
	case programs[i].version == nfs4Version && in > out:
		row = kindWrites4
	case programs[i].version == nfs4Version:
		row = kindReads4
	case i == 0:
		row = int(c.Procedure)
	}
	size := (bits.Len(uint(in+out)>>12) + 1) / 2 // up to 4 KiB, 16 KiB, and so on
	return row*kindSizes + min(size, kindSizes-1)
}

func messageSize(m *oncrpc.Message) (n int) {
	for _, s := range m.Stream {
		n += len(s)
	}
	for i := range m.Items {
		n += m.Items[i].Length
	}
	return n
}
