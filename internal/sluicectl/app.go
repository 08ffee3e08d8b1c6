package sluicectl

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Streams are a command's standard files.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is the state shared by all commands.
type app struct {
	Streams
	opts options

	mu         sync.Mutex // guards Err while a session is open, and the following
	bar        bool       // the terminal's last line is a progress bar
	delayNoted time.Time  // see delayed
}

// note prints a line about an event on standard error.
func (a *app) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clearLocked()
	fmt.Fprintf(a.Err, "sluicectl: "+format+"\n", args...)
}

// clearLocked removes the progress bar.
func (a *app) clearLocked() {
	if a.bar {
		fmt.Fprint(a.Err, "\r\x1b[K")
		a.bar = false
	}
}

// printJSON prints a document.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.Out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
