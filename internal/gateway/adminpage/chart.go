package adminpage

import (
	"fmt"
	"strings"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
)

// The size of a chart in pixels, without its labels.
const (
	chartWidth  = 560
	chartHeight = 100
	barStep     = 60
)

// chart is a drawing of one or two series over the last 10 min.
type chart struct {
	Title  string
	Max    string // label of the top
	Series []series
}

// series is a line of a chart.
type series struct {
	Name, Class string
	Now         string
	Points      string // of an SVG polyline
}

// newChart draws series with a common scale. unit formats a value.
func newChart(title string, unit func(float64) string, names []string, values ...[]float64) chart {
	top := 0.0
	for _, v := range values {
		for _, y := range v {
			top = max(top, y)
		}
	}
	c := chart{Title: title, Max: unit(top)}
	for i, v := range values {
		s := series{Name: names[i], Class: fmt.Sprint("line", i), Now: unit(0)}
		if len(v) > 0 {
			s.Now = unit(v[len(v)-1])
		}
		s.Points = points(v, top)
		c.Series = append(c.Series, s)
	}
	return c
}

// points places the newest value at the right edge, and the highest at the top.
func points(values []float64, top float64) string {
	var b strings.Builder
	for i, v := range values {
		x := chartWidth * float64(maxSamples-1-len(values)+i+1) / (maxSamples - 1)
		y := float64(chartHeight)
		if top > 0 {
			y *= 1 - v/top
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", x, y)
	}
	return strings.TrimSpace(b.String())
}

// bar is a bar of a histogram of latencies.
type bar struct {
	X, Y, Width, Height float64
	Middle              float64 // of its label
	Label, Text         string
}

// latencyBars draws a histogram. Its bars are next to each other.
func latencyBars(buckets []status.Bucket) []bar {
	var most uint64
	for _, b := range buckets {
		most = max(most, b.RPCs)
	}
	var bars []bar
	for i, b := range buckets {
		h := chartHeight * float64(b.RPCs) / float64(most)
		label := "more"
		if b.UpTo > 0 {
			label = "≤ " + formatSeconds(b.UpTo)
		}
		x := float64(i) * barStep
		bars = append(bars, bar{
			X: x, Y: chartHeight - h, Width: barStep - 6, Height: h, Middle: x + (barStep-6)/2, Label: label, Text: fmt.Sprintf("%s: %d calls", label, b.RPCs),
		})
	}
	return bars
}

// formatSeconds formats a time with three digits.
func formatSeconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", s*1e6)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", s*1e3)
	default:
		return fmt.Sprintf("%.3g s", s)
	}
}

// formatBytes formats a number of bytes with three digits.
func formatBytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	i := 0
	for n >= 999.5 && i < len(units)-1 {
		n /= 1000
		i++
	}
	return fmt.Sprintf("%.3g %s", n, units[i])
}

func bytesPerSecond(n float64) string { return formatBytes(n) + "/s" }

func callsPerSecond(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.3g calls/s", n)
	}
	return fmt.Sprintf("%.0f calls/s", n)
}
