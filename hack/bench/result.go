package main

import (
	"encoding/json"
	"os"
	"slices"
)

// results are the measured rows in the form of bench.json: a list of objects, each with "op".
type results struct {
	path string
	rows []any
}

// add rewrites the file, so that an interrupted run keeps its rows.
func (r *results) add(row any) error {
	r.rows = append(r.rows, row)
	b, err := json.MarshalIndent(r.rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path, append(b, '\n'), 0o644)
}

// samples are one row's figures: a list for each side, round by round.
type samples map[string][]float64

func (s samples) add(side string, v float64) { s[side] = append(s[side], v) }

func (s samples) median(side string) float64 { return median(s[side]) }

// ratio is the median of the ratios within each round, since the machine's speed drifts. Above 1
// side is faster than other; for latencies the ratio is inverted.
func (s samples) ratio(side, other, unit string) float64 {
	var q []float64
	for i, v := range s[side] {
		w := s[other][i]
		if unit == "us" || unit == p99 {
			v, w = w, v
		}
		if w > 0 {
			q = append(q, v/w)
		}
	}
	return median(q)
}

func minimum(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Min(v)
}

func maximum(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Max(v)
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
