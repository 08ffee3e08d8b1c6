package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
)

var (
	poolDesc = metric.Desc("memory_bytes",
		"Bytes of memory of the export outside the Go heap: mapped, in_use by messages and receives, reserved for bulk data of calls in flight, limit of reserved, retained for replies that may be requested again, and huge_pages of mapped.", "state")
	refusalsDesc = metric.Desc("memory_huge_page_refusals_total", "Allocations that used ordinary memory for lack of huge pages.")
	waitingDesc  = metric.Desc("memory_waiting_calls", "Calls waiting for bulk memory.")
)

// trimInterval is the shortest time after which unused memory returns to the system.
const trimInterval = time.Minute

// memory is the memory of an export, registered with the providers of its listeners.
type memory struct {
	pool   *bufpool.Pool
	budget *bufpool.Budget
	iwarp  rdma.Domain

	mu      sync.Mutex
	domains map[rdma.Provider]rdma.Domain // of verbs
}

// newMemory makes the memory of an export. It needs close, also after an error.
func newMemory(res *resources) (*memory, error) {
	m := &memory{pool: bufpool.New(0), budget: bufpool.NewBudget(0, 0)}
	m.budget.Under(res.memory)
	if res.hugePages {
		m.pool.UseHugePages(res.noHugePages)
	}
	provider, err := iwarp.New(iwarp.Config{})
	if err != nil {
		return m, err
	}
	m.iwarp, err = m.newDomain(provider)
	return m, err
}

func (m *memory) newDomain(p rdma.Provider) (rdma.Domain, error) {
	d, err := p.NewDomain()
	if err != nil {
		return nil, fmt.Errorf("protection domain: %w", err)
	}
	if err := d.Register(m.pool); err != nil {
		return d, fmt.Errorf("registering memory: %w", err)
	}
	return d, nil
}

// domainOf returns the protection domain of a verbs provider.
func (m *memory) domainOf(p rdma.Provider) (rdma.Domain, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.domains[p]; d != nil {
		return d, nil
	}
	d, err := m.newDomain(p)
	if err != nil {
		return nil, err
	}
	if m.domains == nil {
		m.domains = map[rdma.Provider]rdma.Domain{}
	}
	m.domains[p] = d
	return d, nil
}

func (m *memory) setLimits(l *config.Limits) {
	m.budget.SetLimits(bufpool.Limits{
		Total: int64(l.Memory), PerClient: int64(l.MemoryPerClient), PerShare: int64(l.MemoryPerConnection), MinProgress: int64(l.MinProgress),
	})
}

// trim returns unused memory to the system until done is closed.
func (m *memory) trim(log *slog.Logger, done <-chan struct{}) {
	t := time.NewTicker(trimInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := m.pool.Trim(); err != nil {
				log.Error("unused memory not released", "error", err)
			}
		case <-done:
			return
		}
	}
}

// close releases the memory, when nothing uses it any more.
func (m *memory) close() error {
	var errs []error
	if m.iwarp != nil {
		errs = append(errs, m.iwarp.Close())
	}
	for _, d := range m.domains {
		errs = append(errs, d.Close())
	}
	// A handler may still hold a call that was cut off.
	m.budget.Close()
	err := m.pool.Close()
	for range 20 {
		if err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
		err = m.pool.Close()
	}
	return errors.Join(append(errs, err)...)
}

func (m *memory) collect(s metric.Sink, limit config.Quantity) {
	pool := m.pool.Stats()
	s.Gauge(poolDesc, float64(pool.Mapped), "mapped")
	s.Gauge(poolDesc, float64(pool.InUse), "in_use")
	s.Gauge(poolDesc, float64(m.budget.Used()), "reserved")
	s.Gauge(poolDesc, float64(limit), "limit")
	s.Gauge(poolDesc, float64(m.budget.Retained()), "retained")
	s.Gauge(poolDesc, float64(pool.Huge), "huge_pages")
	s.Counter(refusalsDesc, uint64(pool.Refusals))
	s.Gauge(waitingDesc, float64(m.budget.Waiting()))
}
