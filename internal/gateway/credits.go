package gateway

import (
	"math"
	"sync/atomic"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

var (
	receivesDesc = metric.Desc("credit_memory_bytes",
		"Bytes of receives promised for current or former credits; with policy Adaptive also their limit.", "state")
	sharedDesc   = metric.Desc("shared_receives", "Receives posted in queues that RDMA connections share.")
	ceilingDesc  = metric.Desc("credit_ceiling", "Per-connection credit ceiling at the current backend latency.")
	regrantsDesc = metric.Desc("credit_changes_total",
		"Changes of the credits of connections, by reason (use, latency, memory, config) and direction (raised, lowered).", "reason", "direction")
)

// ownReceives is the number of RDMA connections of a listener with receives of their own, which
// version 2 may resize. Further ones share receives, if the device can.
const ownReceives = 16

// credits is the credit policy of an export. Policy Static is policy Adaptive with equal limits and
// unlimited memory, so that each can follow the other while connections stay.
type credits struct {
	*credit.Adaptive
	shared atomic.Int64 // receives posted in shared queues
}

// newCredits returns a policy with default limits, within the memory of all exports.
func newCredits(total *credit.Memory) *credits {
	t := config.DefaultExport().Transport
	p, err := credit.NewAdaptive(creditLimits(&t), nil)
	if err != nil {
		panic(err) // the defaults are valid
	}
	p.Under(total)
	return &credits{Adaptive: p}
}

func creditLimits(t *config.Transport) credit.Limits {
	c := &t.Credits
	l := credit.Limits{Min: c.Min, Max: c.Max, Memory: int64(c.Memory), ReceiveSize: int(t.ReceiveSize())}
	if c.Policy == config.Static {
		l.Min, l.Memory = c.Max, math.MaxInt64
	}
	return l
}

// setLimits changes the credits from the next replies on.
func (c *credits) setLimits(t *config.Transport) error { return c.SetLimits(creditLimits(t)) }

func (c *credits) status(t *config.Transport) *status.Credits {
	st := c.Stats()
	s := &status.Credits{Policy: t.Credits.Policy, Granted: st.Granted, Receives: st.Promised, Shared: int(c.shared.Load()), Max: st.Max}
	if s.Policy == config.Adaptive {
		s.Adaptive = &status.Adaptive{Min: st.Min, Ceiling: st.Ceiling, Memory: st.Memory, Changes: map[string]status.CreditChanges{}}
		for r := range credit.Reasons {
			s.Changes[r.String()] = status.CreditChanges{Raised: st.Raised[r], Lowered: st.Lowered[r]}
		}
	}
	return s
}

func (c *credits) collect(s metric.Sink) {
	st := c.Stats()
	s.Gauge(receivesDesc, float64(st.Promised), "promised")
	if st.Memory < math.MaxInt64 {
		s.Gauge(receivesDesc, float64(st.Memory), "limit")
	}
	s.Gauge(sharedDesc, float64(c.shared.Load()))
	s.Gauge(ceilingDesc, float64(st.Ceiling))
	for r := range credit.Reasons {
		s.Counter(regrantsDesc, st.Raised[r], r.String(), "raised")
		s.Counter(regrantsDesc, st.Lowered[r], r.String(), "lowered")
	}
}
