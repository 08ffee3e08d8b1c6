package benchrtt

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

var output = flag.String("o", "", "measure at all distances, print the table, and write it to this file too")

// TestBenchRTT measures the engines and compares them.
func TestBenchRTT(t *testing.T) {
	at := distances[1:2]
	if *output != "" {
		at = distances
	}
	var r *report
	synctest.Test(t, func(t *testing.T) { r = measure(t, at) })
	if t.Failed() {
		return
	}
	for i := range r.Rows {
		if err := r.check(&r.Rows[i]); err != nil {
			t.Error(err)
		}
	}
	if *output == "" {
		return
	}
	r.Delayed = measureDelayed(t)
	r.print(os.Stdout)
	if err := r.write(*output); err != nil {
		t.Error(err)
	}
}

func measure(t *testing.T, at []time.Duration) *report {
	r := &report{Limits: limits{inline, credits, receiveHead, receiveData, transmissions}}
	for _, rtt := range at {
		for _, bandwidth := range bandwidths {
			for i := range engines {
				c := connect(t, &engines[i], network{rtt, bandwidth})
				if rtt == at[0] && bandwidth == 0 {
					r.Opening = append(r.Opening, opening{engines[i].name, c.fabric.RoundTrips(time.Now().Add(-c.opening))})
				}
				for _, op := range operations {
					r.Rows = append(r.Rows, c.measure(op))
				}
				c.close()
			}
		}
	}
	return r
}

// known are costs given by the protocol. By RFC 8166 results and long replies are written,
// arguments and long calls are read; with the extension, 64 KiB fit one receive.
var known = map[string]map[string]counts{
	"version 1": {
		"GETATTR":        {RoundTrips: 1, Messages: 2},
		"READ 64 KiB":    {RoundTrips: 1, Messages: 2, Operations: 1, Registrations: 1},
		"READ 1 MiB":     {RoundTrips: 1, Messages: 2, Operations: 1, Registrations: 1},
		"WRITE 64 KiB":   {RoundTrips: 2, Messages: 2, Operations: 1, Registrations: 1},
		"WRITE 1 MiB":    {RoundTrips: 2, Messages: 2, Operations: 1, Registrations: 1},
		"SETACL 32 KiB":  {RoundTrips: 2, Messages: 2, Operations: 1, Registrations: 1},
		"READDIR 64 KiB": {RoundTrips: 1, Messages: 2, Operations: 1, Registrations: 1},
	},
	"version 2 + rtrext": {
		"GETATTR":      {RoundTrips: 1, Messages: 2},
		"READ 64 KiB":  {RoundTrips: 1, Messages: 2},
		"READ 1 MiB":   {RoundTrips: 1, Messages: 1 + 16},
		"WRITE 64 KiB": {RoundTrips: 1, Messages: 2},
		"WRITE 1 MiB":  {RoundTrips: 1, Messages: 16 + 1},
	},
}

// check compares a row with the clock, with other networks, and with version 1.
func (r *report) check(x *row) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s by %s, round trip of %v, %s: %s", x.Op, x.Engine, x.network.rtt, speed(x.network.bandwidth), fmt.Sprintf(format, args...))
	}
	unlimited := x.network.bandwidth == 0
	if by := float64(x.elapsed) / float64(x.network.rtt); unlimited && by != x.RoundTrips {
		return fail("%v are %g round trips, the transcript has %g", x.elapsed, by, x.RoundTrips)
	}
	if same := r.find(x.Op, x.Engine, r.Rows[0].network); same.counts != x.counts {
		return fail("counts are %+v, and %+v over another network", x.counts, same.counts)
	}
	if want, ok := known[x.Engine][x.Op]; ok && x.counts != want {
		return fail("counts are %+v, must be %+v", x.counts, want)
	}
	old := r.find(x.Op, engines[0].name, x.network)
	switch {
	case x.RoundTrips > old.RoundTrips && !x.slower:
		return fail("%g round trips, version 1 needs %g", x.RoundTrips, old.RoundTrips)
	case x.Registrations > old.Registrations:
		return fail("%d registrations, version 1 needs %d", x.Registrations, old.Registrations)
	case unlimited && x.elapsed > old.elapsed && !x.slower:
		return fail("it takes %v, by version 1 %v", x.elapsed, old.elapsed)
	case x.extended && (x.RoundTrips != 1 || x.Registrations != 0):
		return fail("%g round trips and %d registrations, must be 1 and 0", x.RoundTrips, x.Registrations)
	}
	return nil
}

func TestRoundTrips(t *testing.T) {
	const client, server = rdmatest.Dialer, rdmatest.Acceptor
	type flight = struct {
		from rdmatest.Side
		what string
	}
	for _, tt := range []struct {
		name    string
		flights []flight
		want    float64
	}{
		{"nothing", nil, 0},
		{"a call alone", []flight{{client, "Send"}}, 0.5},
		{"call and reply", []flight{{client, "Send"}, {server, "Send with Invalidate"}}, 1},
		{"exposing is no flight", []flight{{client, "exposed"}, {client, "Send"}, {server, "Send"}, {client, "invalidated"}}, 1},
		{"a result is written", []flight{{client, "Send"}, {server, "RDMA Write"}, {server, "RDMA Write"}, {server, "Send"}}, 1},
		{"arguments are read", []flight{{client, "Send"}, {server, "RDMA Read"}, {server, "RDMA Read"}, {server, "Send"}}, 2},
		{"groups", []flight{{client, "Send"}, {client, "Send"}, {client, "Send"}, {server, "Send"}, {server, "Send"}}, 1},
		{"a message is answered and sent again", []flight{{client, "Send"}, {server, "Send"}, {client, "Send"}, {server, "Send"}}, 2},
	} {
		var events []rdmatest.Event
		for _, f := range tt.flights {
			events = append(events, rdmatest.Event{From: f.from, What: f.what})
		}
		if got := roundTrips(events); got != tt.want {
			t.Errorf("%s: %g round trips, want %g", tt.name, got, tt.want)
		}
	}
}
