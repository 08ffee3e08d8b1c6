package main

import (
	"encoding/json"
	"os"
	"slices"
	"time"
)

// result is one measurement of one side.
type result struct {
	Rate float64 // operations per second
	P50  float64 // microseconds
}

func newResult(n int, d time.Duration, lat []time.Duration) result {
	slices.Sort(lat)
	r := result{Rate: float64(n) / d.Seconds()}
	if len(lat) > 0 {
		r.P50 = float64(lat[len(lat)/2].Nanoseconds()) / 1e3
	}
	return r
}

// row is one line of the table and one entry of bench.json. At depth 1 the figures are the median latency in
// microseconds, otherwise operations or megabytes per second. A ratio above 1 is in the gateway's favour.
type row struct {
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
}

// samples are what the rounds of one row gave, a list for each side, round by round.
type samples map[string][]float64

// row takes medians: of each side's figures, and of the ratios within each round, since the machine's speed drifts.
func (s samples) row(r row) row {
	r.Sluice, r.Ganesha, r.Floor, r.Raw = median(s["sluice"]), median(s["ganesha"]), median(s["floor"]), median(s["raw"])
	ratio := func(side string) float64 {
		var q []float64
		for i, v := range s[side] {
			a := s["sluice"][i]
			if r.Unit == "us" {
				a, v = v, a
			}
			if v > 0 {
				q = append(q, a/v)
			}
		}
		return median(q)
	}
	r.VsGanesha, r.VsFloor, r.VsRaw = ratio("ganesha"), ratio("floor"), ratio("raw")
	return r
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func writeJSON(path string, rows []row) error {
	b, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
