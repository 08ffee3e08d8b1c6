package gateway

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settle     = 100 * time.Millisecond // a file is read when its directory was quiet for so long,
	settleMost = time.Second            // or after this, if it never is
	pollEvery  = 10 * time.Second       // what no event told is seen by this
)

// watch calls changed whenever a file may have changed, until ctx ends. It watches the file's directory, since
// editors replace files and Kubernetes swaps a link beside them, and looks by itself now and then, since network file
// systems, and directories that are replaced, tell nothing.
func watch(ctx context.Context, log *slog.Logger, file string, changed func()) {
	var events chan fsnotify.Event
	var errs chan error
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err = w.Add(filepath.Dir(file))
		events, errs = w.Events, w.Errors
	}
	if err != nil {
		log.Warn("the file's directory cannot be watched; it is read every so often instead", "file", file, "every", pollEvery, "error", err)
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	quiet := time.NewTimer(0)
	quiet.Stop()
	defer quiet.Stop()
	changed()           // before it was watched, perhaps
	var since time.Time // the first event that changed was not called for; zero if there is none
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if since.IsZero() {
				since = time.Now()
			}
			quiet.Reset(min(settle, max(0, settleMost-time.Since(since))))
		case err := <-errs:
			// Events may have been lost: look.
			log.Warn("watching the file's directory", "file", file, "error", err)
			quiet.Reset(settle)
		case <-quiet.C:
			since = time.Time{}
			changed()
		case <-poll.C:
			if w != nil {
				_ = w.Add(filepath.Dir(file)) // the directory may be a new one
			}
			changed()
		}
	}
}
