package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
)

const (
	probeEvery = 10 * time.Second
	// closeWithin bounds the wait for file operations that do not come back.
	closeWithin = 5 * time.Second
)

// backend is where an export's files are: an NFS server on a directory.
type backend struct {
	volume   config.Volume
	dir      *os.File // holds the lock that keeps others from serving the directory
	srv      *server.Server
	decorate func(oncrpc.Handler) oncrpc.Handler // for tests
	users    sync.WaitGroup                      // servers that hand calls to it
	stop     chan struct{}

	asked, answered atomic.Int64 // when the directory was last looked at, and when it answered; on the clock of epoch
	failure         atomic.Pointer[error]
}

// openBackend opens what x says.
func openBackend(e *export, x *config.Export) (_ *backend, err error) {
	if x.Backend.Volume == nil {
		return nil, errors.New("backend: want volume: {path: DIRECTORY}; this gateway serves no other kind")
	}
	v := *x.Backend.Volume
	b := &backend{volume: v, stop: make(chan struct{}), decorate: e.gateway.o.decorate}
	if b.dir, err = lockDirectory(e, v.Path); err != nil {
		return nil, fmt.Errorf("backend.volume.path: %w", err)
	}
	b.srv, err = server.New(server.Config{
		Root: v.Path, Name: e.name, Access: rules(x.Access), StateDir: e.gateway.stateDir(), Logger: e.log,
	})
	if err != nil {
		_ = b.dir.Close()
		return nil, err
	}
	b.answered.Store(int64(time.Since(epoch)))
	go b.probe()
	return b, nil
}

// lockDirectory opens a directory and makes sure that no one else serves it: two servers would split locks and reply caches.
func lockDirectory(e *export, path string) (*os.File, error) {
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		_ = d.Close()
		return nil, fmt.Errorf("%q is served by another export or gateway (it has the directory's lock): want one server for each directory", path)
	case err != nil:
		// Some network file systems cannot lock directories.
		e.log.Warn("the directory cannot be locked against a second server: take care that there is none", "path", path, "error", err)
	}
	return d, nil
}

// same tells whether a volume is the one that b serves, whatever its path says.
func (b *backend) same(v *config.Volume) bool {
	if v == nil {
		return false
	}
	if filepath.Clean(v.Path) == filepath.Clean(b.volume.Path) {
		return true
	}
	mine, err1 := b.dir.Stat()
	other, err2 := os.Stat(v.Path)
	return err1 == nil && err2 == nil && os.SameFile(mine, other)
}

// handler is what answers calls.
func (b *backend) handler() oncrpc.Handler {
	if b.decorate != nil {
		return b.decorate(b.srv)
	}
	return b.srv
}

func (b *backend) setAccess(r []config.AccessRule) error { return b.srv.SetAccess(rules(r)) }

func rules(access []config.AccessRule) []server.Rule {
	rs := make([]server.Rule, len(access))
	for i, a := range access {
		rs[i] = server.Rule{Networks: a.From.Networks, ReadOnly: a.Mode == config.ReadOnly}
		switch a.Squash {
		case config.SquashNone:
			rs[i].Squash = server.SquashNone
		case config.SquashAll:
			rs[i].Squash = server.SquashAll
		default:
			rs[i].Squash = server.SquashRoot
		}
	}
	return rs
}

// newServing makes a server that hands its calls to b.
func newServing[T any](r *relay[T], b *backend, serve func() error, shutdown func(context.Context) error) *serving[T] {
	b.users.Add(1)
	return &serving[T]{relay: r, serve: serve, shutdown: func(ctx context.Context) error {
		defer b.users.Done()
		return shutdown(ctx)
	}}
}

// probe looks now and then whether the directory answers.
func (b *backend) probe() {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-t.C:
		}
		b.asked.Store(int64(time.Since(epoch)))
		var st unix.Statfs_t
		err := unix.Statfs(b.volume.Path, &st) // by its path: a file system that was mounted over it shows too
		if err != nil {
			err = &os.PathError{Op: "statfs", Path: b.volume.Path, Err: err}
		}
		b.failure.Store(&err)
		b.answered.Store(int64(time.Since(epoch)))
	}
}

func (b *backend) status() BackendStatus {
	s := BackendStatus{Kind: "volume", Path: b.volume.Path, Healthy: true}
	info := b.srv.Info()
	s.Identity = "the callers' uids and gids"
	if !info.Identities {
		s.Identity = fmt.Sprintf("uid %d and gid %d, whoever calls", os.Geteuid(), os.Getegid())
	}
	s.Notes = info.Notes
	if f := b.failure.Load(); f != nil && *f != nil {
		s.Healthy, s.Error = false, (*f).Error()
	}
	if asked, answered := b.asked.Load(), b.answered.Load(); asked > answered {
		if silent := time.Since(epoch) - time.Duration(asked); silent > probeEvery {
			s.Healthy, s.Error = false, fmt.Sprintf("the directory has not answered for %v", silent.Round(time.Second))
		}
	}
	return s
}

// close ends the backend when nothing uses it any more.
func (b *backend) close() error {
	b.users.Wait()
	close(b.stop)
	done := make(chan error, 1)
	go func() { done <- b.srv.Close() }()
	select {
	case err := <-done:
		return errors.Join(err, b.dir.Close())
	case <-time.After(closeWithin):
		return fmt.Errorf("backend.volume.path: %q: file operations do not come back", b.volume.Path)
	}
}
