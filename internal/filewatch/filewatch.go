// Package filewatch reports changes of a file.
package filewatch

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settle    = 100 * time.Millisecond // quiet time of the directory before a report
	settleMax = time.Second            // limit on settle, for a directory that is never quiet
	pollEvery = 10 * time.Second       // reports without an event
)

// Watch calls changed at once, and whenever file may have changed, until ctx ends. It watches the
// file's directory, because editors replace files and Kubernetes swaps a link beside them. It also
// calls changed every 10 s, because network file systems and replaced directories send no events.
func Watch(ctx context.Context, log *slog.Logger, file string, changed func()) {
	var events chan fsnotify.Event
	var errs chan error
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err = w.Add(filepath.Dir(file))
		events, errs = w.Events, w.Errors
	}
	if err != nil {
		log.Warn("cannot watch the directory of the file; polling it", "file", file, "every", pollEvery, "error", err)
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	quiet := time.NewTimer(0)
	quiet.Stop()
	defer quiet.Stop()
	changed()                // the file may have changed before the watch began
	var firstEvent time.Time // oldest event without a report; zero if there is none
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if firstEvent.IsZero() {
				firstEvent = time.Now()
			}
			quiet.Reset(min(settle, max(0, settleMax-time.Since(firstEvent))))
		case err := <-errs:
			// Events may have been lost.
			log.Warn("cannot watch the directory of the file; reading the file once", "file", file, "error", err)
			quiet.Reset(settle)
		case <-quiet.C:
			firstEvent = time.Time{}
			changed()
		case <-poll.C:
			if w != nil {
				_ = w.Add(filepath.Dir(file)) // the directory may be a new one
			}
			changed()
		}
	}
}
