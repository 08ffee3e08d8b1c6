// Package telemetry has the parts of logs and metrics that all programs share.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/version"
)

// RegisterBuildInfo adds sluice_build_info to r: 1, with the program, its version and revision, and
// the version of Go.
func RegisterBuildInfo(r prometheus.Registerer, program, release string) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_build_info", Help: "The program, its version and revision, and the version of Go.",
		ConstLabels: prometheus.Labels{
			"program": program, "version": release, "revision": version.GetRevision(), "goversion": version.GoVersion,
		},
	}, func() float64 { return 1 }))
}

// LogFormat is the format of log lines: text, the default, or json. It implements
// encoding.TextMarshaler and encoding.TextUnmarshaler, for flags.
type LogFormat string

// Formats of log lines.
const (
	Text LogFormat = "text"
	JSON LogFormat = "json"
)

// MarshalText implements encoding.TextMarshaler.
func (f LogFormat) MarshalText() ([]byte, error) { return []byte(f), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *LogFormat) UnmarshalText(b []byte) error {
	switch v := LogFormat(b); v {
	case Text, JSON:
		*f = v
		return nil
	default:
		return fmt.Errorf("%q: want text or json", b)
	}
}

// Handler returns a handler that writes log lines to w.
func (f LogFormat) Handler(w io.Writer, level slog.Leveler) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if f == JSON {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}
