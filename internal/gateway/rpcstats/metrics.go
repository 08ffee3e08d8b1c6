package rpcstats

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/oncrpc"
)

var (
	rpcsDesc = metric.Desc("rpcs_total",
		"Calls, by program, procedure and result: ok, error (the program's status is not OK), refused (by RPC), dropped (not answered).",
		"program", "procedure", "result")
	latencyDesc = metric.Desc("rpc_duration_seconds",
		"Seconds from a call's arrival at the handler to its answer.", "program", "procedure")
	errorsDesc = metric.Desc("errors_total",
		"Error replies, by layer (nfs, rpc) and code.", "layer", "code")
)

// Collect sends the metrics of s. Counters of calls and errors at 0 are left out.
func (s *Stats) Collect(sink metric.Sink) {
	s.collectTransport(sink)
	for i := range programs {
		p := &programs[i]
		for j := range p.procedures {
			s.rpcs[i][j].collect(sink, p.name, p.procedureName(j))
		}
	}
	s.other.collect(sink, "other", "other")
	codes := func(layer string, counts []atomic.Uint64, name func(int) string) {
		for i := range counts {
			if n := counts[i].Load(); n > 0 {
				sink.Counter(errorsDesc, n, layer, name(i))
			}
		}
	}
	codes("nfs", s.nfs[:], func(i int) string { return nfsErrors[i].String() })
	codes("rpc", s.accept[:], func(i int) string { return oncrpc.AcceptStat(i).String() })
	codes("rpc", s.reject[:], func(i int) string { return oncrpc.RejectStat(i).String() })
	codes("rpc", s.auth[:], func(i int) string { return oncrpc.AuthStat(i).String() })
	if n := s.nfsOther.Load() + s.nfs4.collect(sink); n > 0 {
		sink.Counter(errorsDesc, n, "nfs", "other")
	}
}

func (p *procedureStats) collect(s metric.Sink, program, procedure string) {
	for r := range p.results {
		if n := p.results[r].Load(); n > 0 {
			s.Counter(rpcsDesc, n, program, procedure, resultNames[r])
		}
	}
	var total uint64
	cumulative := make(map[float64]uint64, buckets)
	for i := range p.durations {
		total += p.durations[i].Load()
		if i < buckets {
			cumulative[bound(i)] = total
		}
	}
	if total > 0 {
		s.Histogram(latencyDesc, total, float64(p.sum.Load())/1e9, cumulative, p.exemplars(), program, procedure)
	}
}

// exemplars returns the traced calls of the buckets.
func (p *procedureStats) exemplars() (all []prometheus.Exemplar) {
	for i := range p.traces {
		if x := p.traces[i].Load(); x != nil {
			all = append(all, prometheus.Exemplar{
				Value: x.duration.Seconds(), Timestamp: x.at, Labels: prometheus.Labels{"trace_id": x.traceID, "span_id": x.spanID},
			})
		}
	}
	return all
}

// Totals returns the sums over all procedures.
func (s *Stats) Totals() (t status.Counters) {
	var durations [buckets + 1]uint64
	add := func(p *procedureStats) {
		for r := range p.results {
			n := p.results[r].Load()
			t.RPCs += n
			if result(r) != resultOK {
				t.Errors += n
			}
		}
		for i := range durations {
			durations[i] += p.durations[i].Load()
		}
		t.Seconds += time.Duration(p.sum.Load()).Seconds()
	}
	for i := range s.rpcs {
		for j := range s.rpcs[i] {
			add(&s.rpcs[i][j])
		}
	}
	add(&s.other)
	t.BytesIn, t.BytesOut = s.Bytes()
	t.Latency = []status.Bucket{}
	for i, n := range durations {
		b := status.Bucket{RPCs: n}
		if i < buckets {
			b.UpTo = bound(i)
		}
		if n > 0 {
			t.Latency = append(t.Latency, b)
		}
	}
	return t
}
