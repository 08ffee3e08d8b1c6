package sluicectl

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// progress shows a transfer's progress on stderr: a bar on a terminal, occasional lines elsewhere.
type progress struct {
	app      *app
	name     string
	total    int64 // -1: unknown
	width    int   // of the terminal, 0: none
	moved    int64
	began    time.Time
	reported time.Time
	interval time.Duration
}

func (a *app) newProgress(name string, total int64) *progress {
	p := &progress{app: a, name: printable(name), total: total, began: time.Now(), interval: 5 * time.Second}
	if f, ok := a.Err.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			p.width, p.interval = max(int(size.Col), 40), 100*time.Millisecond
		}
	}
	p.reported = p.began
	return p
}

// add adds n bytes; n may be negative.
func (p *progress) add(n int64) {
	p.moved += n
	if now := time.Now(); now.Sub(p.reported) >= p.interval {
		p.reported = now
		p.report(now)
	}
}

func (p *progress) report(now time.Time) {
	rate := float64(p.moved) / max(now.Sub(p.began).Seconds(), 1e-9)
	s := fmt.Sprintf("%s  %s/s", byteSize(p.moved), byteSize(int64(rate)))
	if p.total > 0 {
		s = fmt.Sprintf("%3d%%  %s of %s  %s/s", p.moved*100/p.total, byteSize(p.moved), byteSize(p.total), byteSize(int64(rate)))
		if left := float64(p.total-p.moved) / max(rate, 1); p.moved > 0 && p.moved < p.total {
			s += fmt.Sprintf("  %s left", time.Duration(left*float64(time.Second)).Round(time.Second))
		}
	}
	p.app.mu.Lock()
	defer p.app.mu.Unlock()
	if p.width == 0 {
		fmt.Fprintf(p.app.Err, "%s: %s\n", p.name, s)
		return
	}
	p.app.clearLocked()
	fmt.Fprint(p.app.Err, p.bar(s))
	p.app.bar = true
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
	p.app.mu.Lock()
	defer p.app.mu.Unlock()
	p.app.clearLocked()
	fmt.Fprintf(p.app.Err, "%s: %s in %s, %s/s\n", p.name, byteSize(p.moved), d.Round(time.Millisecond), byteSize(int64(float64(p.moved)/max(d.Seconds(), 1e-9))))
}

// abort ends the display without one.
func (p *progress) abort() {
	p.app.mu.Lock()
	defer p.app.mu.Unlock()
	p.app.clearLocked()
}
