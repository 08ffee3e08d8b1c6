package gateway

import (
	"math"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// Policy Static is policy Adaptive with equal limits and unlimited memory, so that each can follow the
// other while connections stay.

var (
	receivesDesc = metric.Desc("credit_memory_bytes",
		"Bytes of receives promised for current or former credits; with policy Adaptive also their limit.", "state")
	sharedDesc   = metric.Desc("shared_receives", "Receives posted in queues that RDMA connections share.")
	ceilingDesc  = metric.Desc("credit_ceiling", "Per-connection credit ceiling at the current backend latency.")
	regrantsDesc = metric.Desc("credit_changes_total",
		"Changes of the credits of connections, by reason (use, latency, memory, config) and direction (raised, lowered).", "reason", "direction")
)

// newCredits returns the policy of an export that is not served yet.
func newCredits() *credit.Adaptive {
	t := config.DefaultExport().Transport
	p, err := credit.NewAdaptive(creditLimits(&t), nil)
	if err != nil {
		panic(err) // the defaults are valid
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

// setCredits changes the credits from the next replies on.
func (t *traffic) setCredits(c *config.Transport) {
	if err := t.credits.SetLimits(creditLimits(c)); err != nil {
		t.log.Error("credits not changed", "error", err)
	}
}

func (t *traffic) creditStatus(c *config.Transport) *status.Credits {
	st := t.credits.Stats()
	s := &status.Credits{Policy: c.Credits.Policy, Granted: st.Granted, Receives: st.Promised, Shared: int(t.shared.Load()), Max: st.Max}
	if s.Policy == config.Adaptive {
		s.Adaptive = &status.Adaptive{Min: st.Min, Ceiling: st.Ceiling, Memory: st.Memory, Changes: map[string]status.CreditChanges{}}
		for r := range credit.Reasons {
			s.Changes[r.String()] = status.CreditChanges{Raised: st.Raised[r], Lowered: st.Lowered[r]}
		}
	}
	return s
}

func (t *traffic) collectCredits(s metric.Sink) {
	st := t.credits.Stats()
	s.Gauge(receivesDesc, float64(st.Promised), "promised")
	if st.Memory < math.MaxInt64 {
		s.Gauge(receivesDesc, float64(st.Memory), "limit")
	}
	s.Gauge(sharedDesc, float64(t.shared.Load()))
	s.Gauge(ceilingDesc, float64(st.Ceiling))
	for r := range credit.Reasons {
		s.Counter(regrantsDesc, st.Raised[r], r.String(), "raised")
		s.Counter(regrantsDesc, st.Lowered[r], r.String(), "lowered")
	}
}
