package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
)

const (
	probeEvery = 10 * time.Second
	// closeWithin bounds the wait for file operations that do not come back.
	closeWithin = 5 * time.Second
)

// volume is a directory of this host, served by an NFS server of our own.
type volume struct {
	path string
	dir  *os.File // holds the lock that keeps others from serving the directory
	srv  *server.Server
	stop chan struct{}
	// keys are those of handleKeys.file that it was opened with, nil if there is no such file.
	keys    [][]byte
	gateway *Gateway

	asked, answered atomic.Int64 // when the directory was last looked at, and when it answered; on the clock of epoch
	failure         atomic.Pointer[error]
}

func openVolume(e *export, x *config.Export) (_ *volume, err error) {
	v := &volume{path: x.Backend.Volume.Path, stop: make(chan struct{}), gateway: e.gateway}
	if v.dir, err = lockDirectory(e, v.path); err != nil {
		return nil, fmt.Errorf("backend.volume.path: %w", err)
	}
	c := server.Config{Root: v.path, Name: e.name, Access: rules(x.Access), StateDir: e.gateway.stateDir(), Logger: e.log}
	if e.gateway.first.HandleKeys.File != "" {
		if v.keys, err = e.gateway.handleKeys(); err == nil {
			c.Key, c.OlderKeys = v.keys[0], v.keys[1:]
		}
	}
	if err == nil {
		v.srv, err = server.New(c)
	}
	if err != nil {
		_ = v.dir.Close()
		return nil, err
	}
	v.answered.Store(int64(time.Since(epoch)))
	go v.probe()
	return v, nil
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

// same tells whether x names the directory that v serves, whatever its path says.
func (v *volume) same(x *config.Export) bool {
	if x.Backend.Volume == nil {
		return false
	}
	path := x.Backend.Volume.Path
	if filepath.Clean(path) == filepath.Clean(v.path) {
		return true
	}
	mine, err1 := v.dir.Stat()
	other, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(mine, other)
}

func (v *volume) handler() oncrpc.Handler { return v.srv }

func (v *volume) away() bool { return false } // what the kernel has in hand cannot be taken from it

func (v *volume) setAccess(r []config.AccessRule) error { return v.srv.SetAccess(rules(r)) }

// probe looks now and then whether the directory answers.
func (v *volume) probe() {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for {
		select {
		case <-v.stop:
			return
		case <-t.C:
		}
		v.asked.Store(int64(time.Since(epoch)))
		var st unix.Statfs_t
		err := unix.Statfs(v.path, &st) // by its path: a file system that was mounted over it shows too
		if err != nil {
			err = &os.PathError{Op: "statfs", Path: v.path, Err: err}
		}
		v.failure.Store(&err)
		v.answered.Store(int64(time.Since(epoch)))
	}
}

func (v *volume) status() status.Backend {
	s := status.Backend{Kind: "volume", Path: v.path, Healthy: true, Versions: []string{string(config.NFSv3)}}
	info := v.srv.Info()
	s.Identity = "the callers' uids and gids"
	if !info.Identities {
		s.Identity = fmt.Sprintf("uid %d and gid %d, whoever calls", os.Geteuid(), os.Getegid())
	}
	s.Notes = info.Notes
	if v.keys != nil && v.gateway.keysDiffer(v.keys) {
		s.Notes = append(slices.Clone(s.Notes), "handleKeys.file has other keys now: a volume takes them at the next start")
	}
	if f := v.failure.Load(); f != nil && *f != nil {
		s.Healthy, s.Error = false, (*f).Error()
	}
	if asked, answered := v.asked.Load(), v.answered.Load(); asked > answered {
		if silent := time.Since(epoch) - time.Duration(asked); silent > probeEvery {
			s.Healthy, s.Error = false, fmt.Sprintf("the directory has not answered for %v", silent.Round(time.Second))
		}
	}
	return s
}

func (v *volume) close() error {
	close(v.stop)
	done := make(chan error, 1)
	go func() { done <- v.srv.Close() }()
	select {
	case err := <-done:
		return errors.Join(err, v.dir.Close())
	case <-time.After(closeWithin):
		return fmt.Errorf("backend.volume.path: %q: file operations do not come back", v.path)
	}
}

func (v *volume) collect(counter counterFunc, gauge gaugeFunc) {
	s := v.srv.Stats()
	counter(cacheDesc, s.Replays)
	gauge(queuedDesc, float64(s.Queued))
}
