package backend

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
)

const (
	probeInterval = 10 * time.Second
	// closeTimeout bounds the wait for file operations that do not return.
	closeTimeout = 5 * time.Second
)

// volume serves a directory of this host with the NFS server of pkg/nfs/server.
type volume struct {
	path string
	dir  *os.File // has the lock against other servers
	srv  *server.Server
	stop chan struct{}
	keys *Keys

	asked, answered atomic.Int64 // last probe and answer, since epoch
	failure         atomic.Pointer[error]
}

// epoch is the zero of the clock of probes.
var epoch = time.Now()

func openVolume(env *Env, x *config.Export) (_ *volume, err error) {
	v := &volume{path: x.Backend.Volume.Path, stop: make(chan struct{}), keys: env.Keys}
	if v.dir, err = lockDirectory(env.Log, v.path); err != nil {
		return nil, fmt.Errorf("backend.volume.path: %w", err)
	}
	c := server.Config{Root: v.path, Name: env.Export, Access: Rules(x.Access), StateDir: env.StateDir, Logger: env.Log, NFS4: nfs4Config(x)}
	var keys [][]byte // of handleKeys.file; nil without that file
	if env.Keys.file != "" {
		if keys, err = env.Keys.load(); err == nil {
			c.Key, c.OlderKeys = keys[0], keys[1:]
		}
	}
	if err == nil {
		v.srv, err = server.New(c)
	}
	if err != nil {
		_ = v.dir.Close()
		return nil, err
	}
	if keys != nil {
		v.keys.follow(v.srv, keys)
	}
	v.answered.Store(int64(time.Since(epoch)))
	go v.probe()
	return v, nil
}

// lockDirectory opens and locks a directory: two servers would split its locks and reply caches.
func lockDirectory(log *slog.Logger, path string) (*os.File, error) {
	d, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		_ = d.Close()
		return nil, fmt.Errorf("%q is locked by another export or gateway: want one server for each directory", path)
	case err != nil:
		// Some network file systems cannot lock directories.
		log.Warn("cannot lock the directory; make sure that no other server uses it", "path", path, "error", err)
	}
	return d, nil
}

// Same compares directories: a path may have another name.
func (v *volume) Same(x *config.Export) bool {
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

// unreachable returns false: calls in the kernel cannot be cut off.
func (v *volume) unreachable() bool { return false }

func (v *volume) Update(x *config.Export) error {
	if err := v.srv.SetAccess(Rules(x.Access)); err != nil {
		return err
	}
	v.srv.SetNFS4Limits(nfs4Config(x))
	return nil
}

func nfs4Config(x *config.Export) *server.NFS4Config {
	n := &x.Backend.Volume.NFS4
	return &server.NFS4Config{
		Lease: time.Duration(n.Lease), Grace: time.Duration(n.Grace), Clients: n.Clients, Opens: n.Opens, Locks: n.Locks,
		Delegations: n.Delegations, Unshared: !n.Shared, RecordsInRoot: n.RecordsOnVolume, IDDomain: n.IDDomain,
		PersistentSessions: n.Sessions == config.SessionsPersistent,
	}
}

// probe checks regularly that the directory answers.
func (v *volume) probe() {
	t := time.NewTicker(probeInterval)
	defer t.Stop()
	for {
		select {
		case <-v.stop:
			return
		case <-t.C:
		}
		v.asked.Store(int64(time.Since(epoch)))
		var st unix.Statfs_t
		err := unix.Statfs(v.path, &st) // by path, to notice a file system mounted over it
		if err != nil {
			err = &os.PathError{Op: "statfs", Path: v.path, Err: err}
		}
		v.failure.Store(&err)
		v.answered.Store(int64(time.Since(epoch)))
	}
}

func (v *volume) Status() status.Backend {
	s := status.Backend{Kind: "volume", Path: v.path, Healthy: true}
	for _, v := range config.VolumeVersions {
		s.Versions = append(s.Versions, string(v))
	}
	info := v.srv.Info()
	s.Identity = "the callers' uids and gids"
	if !info.Identities {
		s.Identity = fmt.Sprintf("uid %d and gid %d, whoever calls", os.Geteuid(), os.Getegid())
	}
	s.Notes = info.Notes
	s.NFS4 = v.nfs4Status()
	if f := v.failure.Load(); f != nil && *f != nil {
		s.Healthy, s.Error = false, (*f).Error()
	}
	if asked, answered := v.asked.Load(), v.answered.Load(); asked > answered {
		if silent := time.Since(epoch) - time.Duration(asked); silent > probeInterval {
			s.Healthy, s.Error = false, fmt.Sprintf("the directory has not answered for %v", silent.Round(time.Second))
		}
	}
	return s
}

func (v *volume) close() error {
	v.keys.release(v.srv)
	close(v.stop)
	done := make(chan error, 1)
	go func() { done <- v.srv.Close() }()
	select {
	case err := <-done:
		return errors.Join(err, v.dir.Close())
	case <-time.After(closeTimeout):
		return fmt.Errorf("backend.volume.path: %q: file operations do not return", v.path)
	}
}

func (v *volume) Collect(s metric.Sink) {
	st := v.srv.Stats()
	s.Counter(replaysDesc, st.Replays)
	s.Gauge(queuedDesc, float64(st.Queued))
	for _, o := range v.srv.NFS4Operations() {
		s.Counter(nfs4OperationsDesc, o.OK, o.Op.String(), "ok")
		s.Counter(nfs4OperationsDesc, o.Failed, o.Op.String(), "error")
		var total uint64
		cumulative := make(map[float64]uint64, server.NFS4Buckets)
		for i, n := range o.Buckets {
			total += n
			if i < server.NFS4Buckets {
				cumulative[server.NFS4Bound(i).Seconds()] = total
			}
		}
		s.Histogram(nfs4LatencyDesc, total, o.Seconds, cumulative, nil, o.Op.String())
	}
	n := v.srv.NFS4Stats()
	s.Gauge(nfs4ClientsDesc, float64(n.Clients-n.Courtesy), "active")
	s.Gauge(nfs4ClientsDesc, float64(n.Courtesy), "expired")
	s.Gauge(nfs4ClientsDesc, float64(n.Limits.Clients), "limit")
	s.Gauge(nfs4SessionsDesc, float64(n.Sessions))
	s.Gauge(nfs4OpensDesc, float64(n.Opens), "held")
	s.Gauge(nfs4OpensDesc, float64(n.Limits.Opens), "limit")
	s.Gauge(nfs4LocksDesc, float64(n.Ranges), "held")
	s.Gauge(nfs4LocksDesc, float64(n.Limits.Locks), "limit")
	s.Gauge(nfs4DelegationsDesc, float64(n.Delegations), "held")
	s.Gauge(nfs4DelegationsDesc, float64(n.Revoked), "revoked")
	s.Gauge(nfs4DelegationsDesc, float64(max(0, n.Limits.Delegations)), "limit")
	s.Counter(nfs4ExpiriesDesc, n.Expiries)
	s.Gauge(nfs4GraceDesc, metric.Bool(n.Grace))
}

// maxNFS4Clients bounds the clients in a status.
const maxNFS4Clients = 1024

// nfs4Status describes the state of versions 4.1 and 4.2.
func (v *volume) nfs4Status() *status.NFS4 {
	n := v.srv.NFS4Stats()
	s := &status.NFS4{Grace: n.Grace, Opens: n.Opens, Locks: n.Ranges, Delegations: n.Delegations, Clients: []status.NFS4Client{}}
	clients, omitted := v.srv.NFS4Clients(maxNFS4Clients)
	now := time.Now()
	for i := range clients {
		c := &clients[i]
		s.Clients = append(s.Clients, status.NFS4Client{
			ID: strconv.FormatUint(c.ID, 16), Owner: strconv.QuoteToASCII(string(c.Owner)), Remote: c.Remote,
			LeaseExpires: c.Expires.UTC(), Expired: now.After(c.Expires), Reclaiming: c.Reclaiming,
			Sessions: c.Sessions, Opens: c.Opens, Locks: c.Ranges, Delegations: c.Delegations,
		})
	}
	s.ClientsOmitted = omitted
	for _, o := range v.srv.NFS4Operations() {
		s.Operations = append(s.Operations, status.NFS4Operation{
			Operation: o.Op.String(), Calls: o.OK + o.Failed, Errors: o.Failed, Seconds: o.Seconds,
		})
	}
	return s
}

// Expel ends a client of version 4 by the id that its status has. It reports whether there is such
// a client.
func (v *volume) Expel(id string) bool {
	n, err := strconv.ParseUint(id, 16, 64)
	return err == nil && v.srv.ExpelNFS4Client(n)
}
