package main

import (
	"context"
	"fmt"
)

// volumeRow compares the gateway that serves a directory with Ganesha and the floors: a line of the
// table and an entry of bench.json. At depth 1 the figures are the median latency in microseconds,
// otherwise operations or megabytes per second. A ratio above 1 is in the gateway's favour.
type volumeRow struct {
	Op        string  `json:"op"`
	Depth     int     `json:"depth"`
	CRC       bool    `json:"crc"`
	Stability string  `json:"stability,omitempty"`
	Sluice    float64 `json:"sluice"`
	Ganesha   float64 `json:"ganesha"`
	Floor     float64 `json:"floor"`
	Raw       float64 `json:"raw"`
	Unit      string  `json:"unit"`
	VsGanesha float64 `json:"vs_ganesha"`
	VsFloor   float64 `json:"vs_floor"`
	VsRaw     float64 `json:"vs_raw"`
	// CPU time in microseconds per call, of server and client on each side.
	GatewayCPU       float64 `json:"gateway_cpu_us"`
	ClientCPU        float64 `json:"client_cpu_us"`
	GaneshaCPU       float64 `json:"ganesha_cpu_us"`
	GaneshaClientCPU float64 `json:"ganesha_client_cpu_us"`
}

// volumes measures the rows of the gateway that serves a directory.
func (s *sides) volumes(ctx context.Context, todo []measurement, res *results) error {
	fmt.Printf("\n%-12s %5s %-4s %10s %10s %10s %10s %-6s %7s %7s %7s | %8s %8s %8s %8s\n",
		"", "depth", "CRC", "sluice", "ganesha", "floor", "raw", "", "/ganesh", "/floor", "/raw", "CPU us", "client", "ganesha", "client")
	for _, m := range todo {
		got := samples{}
		for range s.o.rounds {
			if err := s.volumeRound(ctx, m, got); err != nil {
				return fmt.Errorf("%s: %w", m, err)
			}
		}
		r := volumeRow{
			Op: m.op.name, Depth: m.depth, CRC: m.crc, Stability: m.op.stability(), Unit: m.unit(),
			Sluice: got.median("sluice"), Ganesha: got.median("ganesha"), Floor: got.median("floor"), Raw: got.median("raw"),
			VsGanesha: got.ratio("sluice", "ganesha", m.unit()), VsFloor: got.ratio("sluice", "floor", m.unit()), VsRaw: got.ratio("sluice", "raw", m.unit()),
			GatewayCPU: got.median("sluice cpu"), ClientCPU: got.median("sluice client"),
			GaneshaCPU: got.median("ganesha cpu"), GaneshaClientCPU: got.median("ganesha client"),
		}
		fmt.Printf("%-12s %5d %-4s %10.1f %10.1f %10.1f %10.1f %-6s %7.2f %7.2f %7.2f | %8.1f %8.1f %8.1f %8.1f\n",
			r.Op, r.Depth, onOff(r.CRC), r.Sluice, r.Ganesha, r.Floor, r.Raw, r.Unit, r.VsGanesha, r.VsFloor, r.VsRaw,
			r.GatewayCPU, r.ClientCPU, r.GaneshaCPU, r.GaneshaClientCPU)
		if err := res.add(r); err != nil {
			return err
		}
	}
	return nil
}

// volumeRound measures every side once.
func (s *sides) volumeRound(ctx context.Context, m measurement, got samples) error {
	floor := floorRequest{op: m.op.floor, size: uint32(m.op.size), crc: m.crc, file: true}
	raw := floorRequest{op: m.op.floor, size: uint32(m.op.size)}
	for _, side := range []struct {
		name string
		run  func() (*measured, error)
	}{
		{"sluice", func() (*measured, error) {
			return s.rdma(ctx, s.volume, m.op, m.depth, m.crc, plainInline, s.volume.pid)
		}},
		{"ganesha", func() (*measured, error) { return s.tcp(ctx, s.ganesha, m.op, m.depth, s.ganeshaPID) }},
		{"floor", func() (*measured, error) { return s.floorRun(ctx, floor, m.depth) }},
		{"raw", func() (*measured, error) { return s.floorRun(ctx, raw, m.depth) }},
	} {
		v, err := side.run()
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		got.add(side.name, v.figure(m.unit(), m.op.size))
		if len(v.CPU) > 0 {
			got.add(side.name+" cpu", v.perCall(v.CPU[0]))
			got.add(side.name+" client", v.perCall(v.Client))
		}
	}
	return nil
}
