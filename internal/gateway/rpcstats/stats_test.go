package rpcstats

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

type statsCollector struct{ s *Stats }

func (c statsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- rpcsDesc
	ch <- latencyDesc
	ch <- errorsDesc
}

// exposition returns the metrics that begin with one of the names.
func exposition(t *testing.T, r prometheus.Gatherer, names ...string) (lines []string) {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("metrics: %d %s", w.Code, w.Body)
	}
	for l := range strings.Lines(w.Body.String()) {
		for _, n := range names {
			if strings.HasPrefix(l, n) {
				lines = append(lines, strings.TrimSpace(l))
			}
		}
	}
	return lines
}

func (c statsCollector) Collect(ch chan<- prometheus.Metric) { c.s.Collect(metric.NewSink("data", ch)) }

// answer returns an answered call with a status of the program.
func answer(program, version, procedure uint32, st nfs3.Status) *oncrpc.Call {
	reply := make([]byte, oncrpc.MinReplyLen+4)
	reply[26], reply[27] = byte(st>>8), byte(st)
	return &oncrpc.Call{Program: program, Version: version, Procedure: procedure, Reply: oncrpc.Message{Stream: [][]byte{reply}}}
}

// split returns the reply of a call in pieces.
func split(c *oncrpc.Call, at ...int) (m oncrpc.Message) {
	b, from := c.Reply.Stream[0], 0
	for _, to := range append(at, len(b)) {
		m.Stream = append(m.Stream, b[from:to])
		from = to
	}
	return m
}

func TestExportStats(t *testing.T) {
	var s Stats
	s.Answered(answer(nfs3.Program, 3, nfs3.ProcNull, 99), time.Microsecond) // NULL has no status
	s.Answered(answer(nfs3.Program, 3, nfs3.ProcRead, nfs3.OK), 9*time.Microsecond)
	s.Answered(answer(nfs3.Program, 3, nfs3.ProcRead, nfs3.ErrStale), time.Minute)
	s.Answered(answer(nfs3.Program, 3, nfs3.ProcWrite, 77), time.Millisecond)
	// another version: the results are unknown
	s.Answered(answer(nfs3.Program, 2, nfs3.ProcRead, nfs3.ErrIO), time.Millisecond)
	for _, st := range []nfs3.Status{10008, 2, 10127, 9999, 10128} {
		s.Answered(answer(nfs3.Program, 4, 1, st), time.Millisecond)
	}
	// behind a verifier: the status is unreadable
	unreadable := answer(nfs3.Program, 4, 1, nfs3.ErrIO)
	unreadable.Reply.Stream[0][19] = 4
	s.Answered(unreadable, time.Millisecond)
	s.Answered(&oncrpc.Call{Program: nfs3.ACLProgram, Version: 3, Procedure: 1, Reply: split(answer(0, 0, 0, nfs3.ErrPerm), 8, oncrpc.MinReplyLen)}, time.Millisecond)
	s.Answered(&oncrpc.Call{Program: nfs3.Program, Version: 4, Procedure: 0}, time.Millisecond)
	s.Answered(answer(nfs3.MountProgram, 3, nfs3.MountProcMnt, nfs3.ErrAcces), time.Millisecond)
	refused := answer(nfs3.Program, 3, 22, nfs3.OK)
	refused.Status = oncrpc.Status{Accept: oncrpc.ProcUnavail}
	s.Answered(refused, time.Millisecond)
	denied := answer(nfs3.Program, 3, nfs3.ProcGetAttr, nfs3.OK)
	denied.Status = oncrpc.Status{Denied: true, Reject: oncrpc.AuthError, Auth: oncrpc.AuthTooWeak}
	s.Answered(denied, time.Millisecond)
	s.Dropped(answer(nfs3.Program, 3, nfs3.ProcGetAttr, nfs3.OK))

	r := prometheus.NewRegistry()
	r.MustRegister(statsCollector{&s})
	want := []string{
		`sluice_errors_total{code="AUTH_TOOWEAK",export="data",layer="rpc"} 1`,
		`sluice_errors_total{code="NFS3ERR_ACCES",export="data",layer="nfs"} 1`,
		`sluice_errors_total{code="NFS3ERR_PERM",export="data",layer="nfs"} 1`,
		`sluice_errors_total{code="NFS3ERR_STALE",export="data",layer="nfs"} 1`,
		`sluice_errors_total{code="NFS4ERR_DELAY",export="data",layer="nfs"} 1`,
		`sluice_errors_total{code="NFS4ERR_NOENT",export="data",layer="nfs"} 1`,
		`sluice_errors_total{code="PROC_UNAVAIL",export="data",layer="rpc"} 1`,
		`sluice_errors_total{code="other",export="data",layer="nfs"} 4`,
		`sluice_rpcs_total{export="data",procedure="COMPOUND",program="nfs4",result="error"} 5`,
		`sluice_rpcs_total{export="data",procedure="COMPOUND",program="nfs4",result="ok"} 1`,
		`sluice_rpcs_total{export="data",procedure="GETACL",program="nfsacl3",result="error"} 1`,
		`sluice_rpcs_total{export="data",procedure="GETATTR",program="nfs3",result="dropped"} 1`,
		`sluice_rpcs_total{export="data",procedure="GETATTR",program="nfs3",result="refused"} 1`,
		`sluice_rpcs_total{export="data",procedure="MNT",program="mount3",result="error"} 1`,
		`sluice_rpcs_total{export="data",procedure="NULL",program="nfs3",result="ok"} 1`,
		`sluice_rpcs_total{export="data",procedure="NULL",program="nfs4",result="ok"} 1`,
		`sluice_rpcs_total{export="data",procedure="READ",program="nfs3",result="error"} 1`,
		`sluice_rpcs_total{export="data",procedure="READ",program="nfs3",result="ok"} 1`,
		`sluice_rpcs_total{export="data",procedure="WRITE",program="nfs3",result="error"} 1`,
		`sluice_rpcs_total{export="data",procedure="other",program="other",result="ok"} 1`,
		`sluice_rpcs_total{export="data",procedure="other",program="other",result="refused"} 1`,
	}
	if d := cmp.Diff(want, exposition(t, r, "sluice_errors_total", "sluice_rpcs_total")); d != "" {
		t.Error(d)
	}
	if got := s.Totals(); got.RPCs != 17 || got.Errors != 12 {
		t.Errorf("%d calls, %d not with success", got.RPCs, got.Errors)
	}
	read := &s.rpcs[0][nfs3.ProcRead]
	if read.durations[1].Load() != 1 || read.durations[buckets].Load() != 1 || read.sum.Load() != int64(time.Minute+9*time.Microsecond) {
		t.Error("the calls are not in their buckets")
	}
	if got := exposition(t, r, "sluice_rpc_duration_seconds_count"); len(got) != 9 {
		t.Errorf("want a histogram for each procedure that was answered, got %q", got)
	}
	for _, want := range []string{
		`sluice_rpc_duration_seconds_bucket{export="data",procedure="READ",program="nfs3",le="8.192e-06"} 0`,
		`sluice_rpc_duration_seconds_bucket{export="data",procedure="READ",program="nfs3",le="1.6384e-05"} 1`,
		`sluice_rpc_duration_seconds_bucket{export="data",procedure="READ",program="nfs3",le="+Inf"} 2`,
		`sluice_rpc_duration_seconds_sum{export="data",procedure="READ",program="nfs3"} 60.000009`,
	} {
		if got := exposition(t, r, want); len(got) != 1 {
			t.Errorf("there is no %s", want)
		}
	}
}

func TestBuckets(t *testing.T) {
	for d, want := range map[time.Duration]int{
		-1: 0, 0: 0, 1: 0, 1 << 13: 0, 1<<13 + 1: 1, 1 << 14: 1, 1<<14 + 1: 2, 1 << 33: 20, 1<<33 + 1: buckets, time.Hour: buckets,
	} {
		if got := bucket(d); got != want {
			t.Errorf("%d ns is in bucket %d, want %d", d, got, want)
		}
		if i := bucket(d); i < buckets && d.Seconds() > bound(i) {
			t.Errorf("%d ns is above its bucket's bound of %g s", d, bound(i))
		}
	}
}

func TestStatsDoNotAllocate(t *testing.T) {
	var s Stats
	c := answer(nfs3.Program, 3, nfs3.ProcRead, nfs3.ErrStale)
	if n := testing.AllocsPerRun(100, func() { s.Answered(c, time.Millisecond); s.Dropped(c) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
