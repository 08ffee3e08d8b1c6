package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machineRow describes the machine and the time of a run: the first entry of bench.json.
type machineRow struct {
	Op        string `json:"op"` // "machine"
	Processor string `json:"processor"`
	Count     int    `json:"processors"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
	Date      string `json:"date"`
}

func thisMachine() machineRow {
	m := machineRow{Op: "machine", Count: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly)}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			m.Processor = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
			break
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

func (m *machineRow) String() string {
	return fmt.Sprintf("%d × %s, Linux %s, %s, %s", m.Count, m.Processor, m.Kernel, m.Go, m.Date)
}

// bar is a line of the picture.
type bar struct {
	name          string
	ratio         float64 // to NFS-Ganesha
	ours, theirs  float64
	unit          string
	server, other float64 // CPU time per call in µs
}

// drawFile draws the results of a file.
func drawFile(results, to string) error {
	b, err := os.ReadFile(results)
	if err != nil {
		return err
	}
	svg, err := draw(b)
	if err != nil {
		return fmt.Errorf("%s: %w", results, err)
	}
	return os.WriteFile(to, svg, 0o644)
}

// readBars returns the machine and the rows that compare Sluice with NFS-Ganesha.
func readBars(results []byte) (m machineRow, bars []bar, err error) {
	var rows []json.RawMessage
	if err := json.Unmarshal(results, &rows); err != nil {
		return m, nil, err
	}
	for _, r := range rows {
		var x struct {
			volumeRow
			Sides []sideCost
		}
		if err := json.Unmarshal(r, &x); err != nil {
			return m, nil, err
		}
		name := x.Op
		if x.Depth > 0 {
			name = fmt.Sprintf("%s, depth %d", x.Op, x.Depth)
		}
		switch {
		case x.Op == "machine":
			if err := json.Unmarshal(r, &m); err != nil {
				return m, nil, err
			}
		case len(x.Sides) == 2 && x.Sides[0].Side == "NFS-Ganesha":
			g, s := x.Sides[0], x.Sides[1]
			bars = append(bars, bar{name, s.Ratio, s.Figure, g.Figure, x.Unit, s.Server, g.Server})
		case x.Ganesha > 0 && x.CRC:
			bars = append(bars, bar{name, x.VsGanesha, x.Sluice, x.Ganesha, x.Unit, x.GatewayCPU, x.GaneshaCPU})
		}
	}
	if m.Op == "" || len(bars) == 0 {
		return m, nil, fmt.Errorf("it has no machine, or no row with NFS-Ganesha")
	}
	return m, bars, nil
}

// draw makes a bar of each row that has NFS-Ganesha: its length is the logarithm of the ratio.
func draw(results []byte) ([]byte, error) {
	m, bars, err := readBars(results)
	if err != nil {
		return nil, err
	}
	const (
		width, row, top, left = 960, 22, 74, 250
		octave                = 60  // pixels of a factor of 2
		one                   = 400 // where the ratio is 1
	)
	height := top + row*len(bars) + 20
	var c bytes.Buffer
	text := func(x, y int, anchor, style, s string) {
		fmt.Fprintf(&c, `<text x="%d" y="%d" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, style, html.EscapeString(s))
	}
	fmt.Fprintf(&c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#112222">`+"\n", width, height)
	fmt.Fprintf(&c, `<rect width="%d" height="%d" fill="#fcfcfa"/>`+"\n", width, height)
	text(16, 24, "start", ` font-weight="bold"`, "Sluice over software iWARP beside NFS-Ganesha over TCP, on loopback")
	text(16, 44, "start", ` font-size="12"`, m.String())
	text(one, 66, "middle", ` font-size="11"`, "equal")
	text(width-170, 66, "end", ` font-size="11"`, "Sluice / NFS-Ganesha")
	text(width-16, 66, "end", ` font-size="11"`, "server CPU, µs a call")
	for i, b := range bars {
		y := top + i*row
		to := one + int(math.Round(octave*math.Log2(max(b.ratio, 1.0/16))))
		fill := "#2f6f6f"
		if b.ratio < 1 {
			fill = "#b45309"
		}
		text(left-10, y+15, "end", "", b.name)
		fmt.Fprintf(&c, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", min(one, to), y+4, max(1, max(one, to)-min(one, to)), row-8, fill)
		text(max(one, to)+6, y+15, "start", ` font-size="11"`, fmt.Sprintf("%.2f", b.ratio))
		text(width-170, y+15, "end", ` font-size="11"`, fmt.Sprintf("%s / %s %s", figure(b.ours), figure(b.theirs), strings.Replace(b.unit, "us", "µs", 1)))
		text(width-16, y+15, "end", ` font-size="11"`, fmt.Sprintf("%s / %s", figure(b.server), figure(b.other)))
	}
	fmt.Fprintf(&c, `<path d="M%d %dV%d" stroke="#335555"/>`+"\n</svg>\n", one, top, height-20)
	return c.Bytes(), nil
}

// figure rounds to three digits.
func figure(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
