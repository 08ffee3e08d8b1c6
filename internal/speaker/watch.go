package speaker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"sluice.dev/sluice/internal/speaker/api"
)

const (
	settle    = 100 * time.Millisecond // the file is read when its directory was quiet for so long
	pollEvery = 10 * time.Second       // what no event told is seen by this
)

// loaded is the file as it was read. config is nil if it cannot be used, and err says why.
type loaded struct {
	config *api.Config
	hash   string
	err    error
}

func load(file string) loaded {
	b, err := os.ReadFile(file)
	if err != nil {
		return loaded{err: err}
	}
	c, err := api.Parse(b)
	if err != nil {
		return loaded{err: err}
	}
	sum := sha256.Sum256(b)
	return loaded{config: c, hash: hex.EncodeToString(sum[:])}
}

// watchFile loads the file now and whenever it may have changed, until ctx ends. It watches the file's directory, since Kubernetes
// swaps a link in it, and looks by itself now and then.
func watchFile(ctx context.Context, file string, changed func(loaded)) {
	var events chan fsnotify.Event
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer w.Close()
		if w.Add(filepath.Dir(file)) == nil {
			events = w.Events
		}
		go func() {
			for range w.Errors { // events that got lost are made up for by looking
			}
		}()
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			quiet.Reset(settle)
		case <-quiet.C:
			changed(load(file))
		case <-poll.C:
			changed(load(file))
		}
	}
}
