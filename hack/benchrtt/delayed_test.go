package benchrtt

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
)

// Real time: calls over software iWARP on loopback, with a relay between client and server that
// delays every delivery.
const (
	realRTT = time.Millisecond
	repeats = 31
)

// delayed is the cost of an operation over the relay.
type delayed struct {
	Op         string  `json:"op"`
	Engine     string  `json:"engine"`
	RTT        float64 `json:"rtt_us"`
	RoundTrips int     `json:"round_trips"`
	Messages   int     `json:"messages"`
	Operations int     `json:"rdma_operations"`
	// Median is the real time of one call, over Times calls.
	Median  float64 `json:"median_us"`
	Repeats int     `json:"repeats"`
}

// overIWARP makes each operation several times over a relay. It returns the relay's counts of one
// call, and the median of their times.
func overIWARP(t *testing.T, e *engine, rtt time.Duration, times int) (rows []delayed) {
	p, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := newConnection(t, e, network{rtt: rtt})
	var wire *iwarptest.Relay
	c.open(p, "127.0.0.1:0", func(address string) string {
		if wire, err = iwarptest.Listen(iwarptest.Config{Target: address, Delay: rtt / 2}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(wire.Close)
		return wire.Address()
	})
	for _, op := range operations {
		took := make([]time.Duration, times)
		before := wire.Counts()
		for i := range took {
			began := time.Now()
			if err := op.do(context.Background(), &c.caller); err != nil {
				t.Fatalf("%s, %s: %v", e.name, op.name, err)
			}
			took[i] = time.Since(began)
		}
		n := wire.Counts()
		slices.Sort(took)
		x := delayed{
			Op: op.name, Engine: e.name, RTT: micros(rtt), RoundTrips: n.RoundTrips - before.RoundTrips, Messages: n.Sends - before.Sends,
			Operations: n.Reads + n.Writes - before.Reads - before.Writes, Median: micros(took[times/2]), Repeats: times,
		}
		for _, n := range []*int{&x.RoundTrips, &x.Messages, &x.Operations} {
			if *n%times != 0 {
				t.Errorf("%s, %s: calls differ: %+v in %d", e.name, op.name, x, times)
			}
			*n /= times
		}
		rows = append(rows, x)
	}
	c.close()
	return rows
}

// countable returns the engines whose messages a relay can attribute to calls. RDMA_DONE, behind a
// reply that the client has read, mixes with the next call.
func countable() (list []*engine) {
	for i := range engines {
		if !engines[i].slower {
			list = append(list, &engines[i])
		}
	}
	return list
}

// TestOverIWARP: the same bytes pass over iWARP as over the fabric in memory, and take as long as
// their round trips.
func TestOverIWARP(t *testing.T) {
	for _, e := range countable() {
		for _, x := range overIWARP(t, e, realRTT, 2) {
			if least := float64(x.RoundTrips) * x.RTT; x.Median < least {
				t.Errorf("%+v, must take %v µs at least", x, least)
			}
			if want, ok := known[e.name][x.Op]; ok && (float64(x.RoundTrips) != want.RoundTrips || uint64(x.Messages) != want.Messages || uint64(x.Operations) != want.Operations) {
				t.Errorf("%+v, must be %+v", x, want)
			}
			if e.extended && (x.RoundTrips != 1 || x.Operations != 0) {
				t.Errorf("%+v, must be one round trip, and no RDMA operation", x)
			}
		}
	}
}

// measureDelayed measures, and compares the engines with version 1: all operations together that
// need fewer round trips take less time.
func measureDelayed(t *testing.T) (rows []delayed) {
	for _, e := range countable() {
		rows = append(rows, overIWARP(t, e, realRTT, repeats)...)
	}
	var took, before float64
	for i, x := range rows {
		if old := rows[i%len(operations)]; x.RoundTrips < old.RoundTrips {
			took, before = took+x.Median, before+old.Median
		}
	}
	if took >= before || before == 0 {
		t.Errorf("what needs fewer round trips takes %g µs together, by version 1 %g", took, before)
	}
	return rows
}

func printDelayed(w io.Writer, rows []delayed) {
	fmt.Fprintf(w, "\nIn real time over software iWARP, by a relay that delivers everything %v later, each way: round trips and messages that the relay counts, and\n"+
		"the median of %d calls in µs, of which computing and the sockets of this machine have their part.\n\n%-14s", realRTT/2, repeats, "")
	for _, e := range countable() {
		fmt.Fprintf(w, " | %-22s", e.name)
	}
	fmt.Fprintf(w, "\n%-14s%s\n", "", strings.Repeat(fmt.Sprintf(" | %5s %4s %11s", "trips", "msgs", "µs"), len(countable())))
	for _, op := range operations {
		fmt.Fprintf(w, "%-14s", op.name)
		for _, e := range countable() {
			for _, x := range rows {
				if x.Op == op.name && x.Engine == e.name {
					fmt.Fprintf(w, " | %5d %4d %11.1f", x.RoundTrips, x.Messages, x.Median)
				}
			}
		}
		fmt.Fprintln(w)
	}
}
