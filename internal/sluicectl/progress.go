package sluicectl

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// progress shows a transfer's progress on stderr: a bar on a terminal, occasional lines elsewhere.
type progress struct {
	w        io.Writer
	name     string
	total    int64 // -1: unknown
	width    int   // of the terminal, 0: none
	moved    int64
	began    time.Time
	told     time.Time
	interval time.Duration
}

func (a *app) newProgress(name string, total int64) *progress {
	p := &progress{w: a.Err, name: printable(name), total: total, began: time.Now(), interval: 5 * time.Second}
	if f, ok := a.Err.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			p.width, p.interval = max(int(size.Col), 40), 100*time.Millisecond
		}
	}
	p.told = p.began
	return p
}

// add adds n bytes; n may be negative.
func (p *progress) add(n int64) {
	p.moved += n
	if now := time.Now(); now.Sub(p.told) >= p.interval {
		p.told = now
		p.tell(now)
	}
}

func (p *progress) tell(now time.Time) {
	rate := float64(p.moved) / max(now.Sub(p.began).Seconds(), 1e-9)
	s := fmt.Sprintf("%s  %s/s", byteSize(p.moved), byteSize(int64(rate)))
	if p.total > 0 {
		s = fmt.Sprintf("%3d%%  %s of %s  %s/s", p.moved*100/p.total, byteSize(p.moved), byteSize(p.total), byteSize(int64(rate)))
		if left := float64(p.total-p.moved) / max(rate, 1); p.moved > 0 && p.moved < p.total {
			s += fmt.Sprintf("  %s left", time.Duration(left*float64(time.Second)).Round(time.Second))
		}
	}
	if p.width == 0 {
		fmt.Fprintf(p.w, "%s: %s\n", p.name, s)
		return
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", p.bar(s))
}

// bar fits name, bar and figures into one line.
func (p *progress) bar(figures string) string {
	room := p.width - 1 - len(figures) - 2
	name := p.name
	if len(name) > room/2 {
		name = name[:max(0, room/2)]
	}
	cells := room - len(name) - 3
	if cells < 4 || p.total <= 0 {
		return fmt.Sprintf("%s  %s", name, figures)
	}
	full := min(int(int64(cells)*p.moved/p.total), cells)
	return fmt.Sprintf("%s [%s%s]  %s", name, strings.Repeat("=", full), strings.Repeat(" ", cells-full), figures)
}

// done ends the display with a summary.
func (p *progress) done() {
	d := time.Since(p.began)
	if p.width > 0 {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintf(p.w, "%s: %s in %s, %s/s\n", p.name, byteSize(p.moved), d.Round(time.Millisecond), byteSize(int64(float64(p.moved)/max(d.Seconds(), 1e-9))))
}

// abort ends the display without one.
func (p *progress) abort() {
	if p.width > 0 {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
