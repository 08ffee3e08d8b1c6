package main

import (
	"context"
	"fmt"
)

// proxyRow compares the path through the gateway to Ganesha with the direct path: a line of the
// table and an entry of bench.json. At depth 1 the figures are the median latency in microseconds,
// otherwise operations or megabytes per second.
type proxyRow struct {
	Op        string  `json:"op"`
	Depth     int     `json:"depth"`
	CRC       bool    `json:"crc"` // between client and gateway
	Stability string  `json:"stability,omitempty"`
	Proxied   float64 `json:"proxied"`
	Direct    float64 `json:"direct"`
	Unit      string  `json:"unit"`
	// Share is the rate through the gateway divided by the direct one; at depth 1, the direct
	// latency divided by the one through the gateway.
	Share float64 `json:"share"`
	// AddedPingPongs is, at depth 1, the latency added by the gateway, in units of PingPong: the
	// median latency in microseconds of 128 bytes each way between two bare processes, measured in
	// the same round.
	AddedPingPongs *float64 `json:"added_pingpongs,omitempty"`
	// Relay is the figure through a process that only forwards bytes. RelayShare and RelayAdded
	// compare it with the direct one, like Share and AddedPingPongs.
	Relay      float64  `json:"relay"`
	RelayShare float64  `json:"relay_share"`
	RelayAdded *float64 `json:"relay_added_pingpongs,omitempty"`
	PingPong   float64  `json:"pingpong,omitempty"`
	// CPU time over the measured intervals of all rounds: of the gateway, of Ganesha behind it, and
	// of Ganesha alone.
	GatewayCPU       float64 `json:"gateway_cpu"`
	GaneshaCPU       float64 `json:"ganesha_cpu"`
	DirectGaneshaCPU float64 `json:"direct_ganesha_cpu"`
	CPUUnit          string  `json:"cpu_unit"` // s/GB of 10^9 bytes, or us/call
}

// cost adds up the CPU time and the calls of processes.
type cost struct {
	calls   float64
	seconds []float64
}

func (c *cost) add(m *measured, processes int) error {
	if len(m.CPU) != processes {
		return fmt.Errorf("sluicectl reported the CPU time of %d processes, want %d", len(m.CPU), processes)
	}
	if c.seconds == nil {
		c.seconds = make([]float64, processes)
	}
	for i, v := range m.CPU {
		c.seconds[i] += v
	}
	c.calls += m.Ops
	return nil
}

// per returns the CPU time of a process in seconds per GB, or in microseconds per call where no
// data move.
func (c *cost) per(process, size int) float64 {
	switch {
	case c.calls == 0:
		return 0
	case size == 0:
		return c.seconds[process] / c.calls * 1e6
	default:
		return c.seconds[process] / (c.calls * float64(size) / 1e9)
	}
}

// proxied measures the rows of the gateway in front of Ganesha.
func (s *sides) proxied(ctx context.Context, todo []measurement, res *results) error {
	fmt.Printf("\n%-18s %5s %10s %10s %-6s %7s %7s | %7s %7s | %-8s %8s %8s %8s\n%-18s %5s %10s %10s %-6s %7s %7s | %7s %7s | %-8s %8s %8s %8s\n",
		"", "depth", "through", "direct", "", "share", "added", "relay's", "relay's", "CPU", "gateway", "ganesha", "direct",
		"", "", "gateway", "", "", "", "pingp.", "share", "pingp.", "", "", "", "ganesha")
	for _, m := range todo {
		r, err := s.proxyRow(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		added, relayAdded := "-", "-"
		if r.AddedPingPongs != nil {
			added, relayAdded = fmt.Sprintf("%.2f", *r.AddedPingPongs), fmt.Sprintf("%.2f", *r.RelayAdded)
		}
		fmt.Printf("%-18s %5d %10.1f %10.1f %-6s %7.2f %7s | %7.2f %7s | %-8s %8.2f %8.2f %8.2f\n",
			r.Op, r.Depth, r.Proxied, r.Direct, r.Unit, r.Share, added, r.RelayShare, relayAdded, r.CPUUnit, r.GatewayCPU, r.GaneshaCPU, r.DirectGaneshaCPU)
		if err := res.add(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *sides) proxyRow(ctx context.Context, m measurement) (*proxyRow, error) {
	got := samples{}
	var through, direct cost
	for range s.o.rounds {
		a, err := s.rdma(ctx, s.proxy, m.op, m.depth, m.crc, plainInline, s.proxy.pid, s.ganeshaPID)
		if err != nil {
			return nil, err
		}
		b, err := s.tcp(ctx, s.ganesha, m.op, m.depth, s.ganeshaPID)
		if err != nil {
			return nil, err
		}
		relayed, err := s.tcp(ctx, s.relay, m.op, m.depth)
		if err != nil {
			return nil, err
		}
		if err := through.add(a, 2); err != nil {
			return nil, err
		}
		if err := direct.add(b, 1); err != nil {
			return nil, err
		}
		got.add("proxied", a.figure(m.unit(), m.op.size))
		got.add("direct", b.figure(m.unit(), m.op.size))
		got.add("relay", relayed.figure(m.unit(), m.op.size))
		if m.depth > 1 {
			continue
		}
		c, err := s.floorRun(ctx, floorRequest{op: floorNull}, 1)
		if err != nil {
			return nil, err
		}
		got.add("pingpong", c.P50)
		got.add("added", (a.P50-b.P50)/c.P50)
		got.add("relay added", (relayed.P50-b.P50)/c.P50)
	}
	r := &proxyRow{
		Op: m.op.name, Depth: m.depth, CRC: m.crc, Stability: m.op.stability(), Unit: m.unit(),
		Proxied: got.median("proxied"), Direct: got.median("direct"), Share: got.ratio("proxied", "direct", m.unit()), PingPong: got.median("pingpong"),
		Relay: got.median("relay"), RelayShare: got.ratio("relay", "direct", m.unit()),
		GatewayCPU: through.per(0, m.op.size), GaneshaCPU: through.per(1, m.op.size), DirectGaneshaCPU: direct.per(0, m.op.size), CPUUnit: "us/call",
	}
	if m.depth == 1 {
		added := got.median("added")
		relay := got.median("relay added")
		r.AddedPingPongs, r.RelayAdded = &added, &relay
	}
	if m.op.size > 0 {
		r.CPUUnit = "s/GB"
	}
	return r, nil
}
