package gateway

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/pkg/oncrpc"
)

const namespace = "sluice_"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, append([]string{"export"}, labels...), nil)
}

var (
	rpcsDesc = desc("rpcs_total",
		"Calls, by program, procedure and result: ok, error (the program's status is not OK), refused (by RPC), dropped (not answered).",
		"program", "procedure", "result")
	latencyDesc = desc("rpc_duration_seconds",
		"From a call's arrival at the handler to its answer.", "program", "procedure")
	errorsDesc = desc("errors_total",
		"Answers that are errors, by layer (nfs, rpc) and code.", "layer", "code")
)

// collect sends the figures of s that have ever moved.
func (s *exportStats) collect(ch chan<- prometheus.Metric, export string) {
	for i := range programs {
		p := &programs[i]
		for j := range p.procedures {
			s.rpcs[i][j].collect(ch, export, p.name, p.procedureName(j))
		}
	}
	s.other.collect(ch, export, "other", "other")
	codes := func(layer string, counts []atomic.Uint64, name func(int) string) {
		for i := range counts {
			if n := counts[i].Load(); n > 0 {
				ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(n), export, layer, name(i))
			}
		}
	}
	codes("nfs", s.nfs[:], func(i int) string { return nfsErrors[i].String() })
	codes("rpc", s.accept[:], func(i int) string { return oncrpc.AcceptStat(i).String() })
	codes("rpc", s.reject[:], func(i int) string { return oncrpc.RejectStat(i).String() })
	codes("rpc", s.auth[:], func(i int) string { return oncrpc.AuthStat(i).String() })
	if n := s.nfsOther.Load() + s.nfs4.collect(ch, export); n > 0 {
		ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(n), export, "nfs", "other")
	}
}

func (p *procedureStats) collect(ch chan<- prometheus.Metric, export, program, procedure string) {
	for r := range p.results {
		if n := p.results[r].Load(); n > 0 {
			ch <- prometheus.MustNewConstMetric(rpcsDesc, prometheus.CounterValue, float64(n), export, program, procedure, resultNames[r])
		}
	}
	var total uint64
	cumulative := make(map[float64]uint64, buckets)
	for i := range p.took {
		total += p.took[i].Load()
		if i < buckets {
			cumulative[bound(i)] = total
		}
	}
	if total > 0 {
		ch <- prometheus.MustNewConstHistogram(latencyDesc, total, float64(p.sum.Load())/1e9, cumulative, export, program, procedure)
	}
}

// totals returns how many calls were answered or dropped, and how many of them not with success.
func (s *exportStats) totals() (rpcs, errors uint64) {
	add := func(p *procedureStats) {
		for r := range p.results {
			n := p.results[r].Load()
			rpcs += n
			if result(r) != resultOK {
				errors += n
			}
		}
	}
	for i := range s.rpcs {
		for j := range s.rpcs[i] {
			add(&s.rpcs[i][j])
		}
	}
	add(&s.other)
	return rpcs, errors
}
