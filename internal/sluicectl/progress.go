package sluicectl

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// showAfter is how long a command works silently on a terminal.
const showAfter = time.Second

// progress shows the progress of a command on stderr: a bar on a terminal, occasional lines
// elsewhere. Its methods may be called concurrently,
// those that count also on nil.
type progress struct {
	app      *app
	name     string
	unit     string // of the counted things, for example "files"; "": one transfer
	width    int    // of the terminal, 0: none
	quiet    bool
	interval time.Duration
	began    time.Time

	mu       sync.Mutex
	reported time.Time
	moved    int64 // bytes
	total    int64 // bytes; -1: unknown
	done     int64 // things
	all      int64 // things known so far
	commit   time.Duration
}

// newProgress shows the transfer of a file of total bytes.
func (a *app) newProgress(name string, total int64) *progress { return a.newCounter(name, "", total) }

// newCounter shows how many things are done, and of how many bytes unless total is -1.
func (a *app) newCounter(name, unit string, total int64) *progress {
	p := &progress{app: a, name: printable(name), unit: unit, total: total, began: time.Now(), interval: 5 * time.Second}
	p.reported = p.began
	if size, ok := terminalSize(a.Err); ok {
		p.width, p.interval = max(int(size.Col), 40), 100*time.Millisecond
		p.reported = p.began.Add(showAfter - p.interval)
	}
	return p
}

// terminalSize returns the size of the terminal that w writes to.
func terminalSize(w io.Writer) (*unix.Winsize, bool) {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return nil, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return size, err == nil
}

// isTerminal reports whether standard output is a terminal.
func (a *app) isTerminal() bool {
	_, ok := terminalSize(a.Out)
	return ok
}

// add adds n bytes; n may be negative.
func (p *progress) add(n int64) { p.update(func() { p.moved += n }) }

// count adds n things that are done.
func (p *progress) count(n int64) { p.update(func() { p.done += n }) }

// expect adds a thing to do, with its bytes.
func (p *progress) expect(bytes int64) { p.update(func() { p.all++; p.total += bytes }) }

// committed adds the time from the last WRITE until all was stable.
func (p *progress) committed(d time.Duration) { p.update(func() { p.commit += d }) }

// skip takes n bytes that are there already out of the total.
func (p *progress) skip(n int64) { p.update(func() { p.total -= n }) }

func (p *progress) update(change func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if now := time.Now(); !p.quiet && now.Sub(p.reported) >= p.interval {
		p.reported = now
		p.reportLocked(now)
	}
}

func (p *progress) reportLocked(now time.Time) {
	s := p.figuresLocked(now)
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

func (p *progress) figuresLocked(now time.Time) string {
	if p.unit != "" && p.total < 0 {
		if p.all > 0 {
			return fmt.Sprintf("%d of %d %s", p.done, p.all, p.unit)
		}
		return fmt.Sprintf("%d %s", p.done, p.unit)
	}
	rate := float64(p.moved) / max(now.Sub(p.began).Seconds(), 1e-9)
	s := byteSize(p.moved)
	if p.total > 0 {
		s = fmt.Sprintf("%3d%%  %s of %s", p.moved*100/p.total, s, byteSize(p.total))
	}
	if p.unit != "" {
		s += fmt.Sprintf("  %d of %d %s", p.done, p.all, p.unit)
	}
	s += fmt.Sprintf("  %s/s", byteSize(int64(rate)))
	if left := float64(p.total-p.moved) / max(rate, 1); p.moved > 0 && p.moved < p.total {
		s += fmt.Sprintf("  %s left", time.Duration(left*float64(time.Second)).Round(time.Second))
	}
	return s
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

// clear ends the display without a summary.
func (p *progress) clear() {
	p.app.mu.Lock()
	defer p.app.mu.Unlock()
	p.app.clearLocked()
}

// end ends the display, with a summary if the transfer succeeded, and returns err.
func (p *progress) end(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.app.mu.Lock()
	defer p.app.mu.Unlock()
	p.app.clearLocked()
	if err != nil || p.unit != "" && p.total < 0 {
		return err
	}
	d := time.Since(p.began)
	things := ""
	if p.unit != "" {
		things = fmt.Sprintf("%d %s, ", p.done, plural(p.unit, p.done))
	}
	commit := ""
	if p.unit == "" && p.commit >= time.Millisecond {
		commit = fmt.Sprintf(", of it %s for COMMIT", p.commit.Round(time.Millisecond))
	}
	fmt.Fprintf(p.app.Err, "%s: %s%s in %s%s, %s/s\n", p.name, things, byteSize(p.moved), d.Round(time.Millisecond), commit, byteSize(int64(float64(p.moved)/max(d.Seconds(), 1e-9))))
	return nil
}

// plural returns the singular of a regular noun for 1.
func plural(noun string, n int64) string {
	if n == 1 {
		return strings.TrimSuffix(noun, "s")
	}
	return noun
}
