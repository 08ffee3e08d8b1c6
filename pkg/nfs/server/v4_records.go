package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// clientRecords keeps the owners of version 4 clients on stable storage: a file for each, whose
// name is a hash of its content. After a restart only they may reclaim state. The zero value keeps
// nothing.
type clientRecords struct {
	dir string
	mu  sync.Mutex
}

// hiddenRecords is the directory of the records in the exported directory, hidden from clients.
const hiddenRecords = ".sluice-clients"

// maxRecords bounds the clients that are loaded.
const maxRecords = 4096

// openClientRecords returns the owners of the clients that an earlier process recorded. Without a
// state directory there are none.
func openClientRecords(s *Server) (*clientRecords, [][]byte) {
	if s.cfg.StateDir == "" && !s.cfg.NFS4.RecordsInRoot {
		return &clientRecords{}, nil
	}
	r := &clientRecords{dir: filepath.Join(s.cfg.StateDir, "clients-"+exportHash(s.cfg.Name))}
	if s.cfg.NFS4.RecordsInRoot {
		r.dir = filepath.Join(s.cfg.Root, hiddenRecords)
	}
	owners, err := r.load()
	if err != nil {
		s.log.Warn("no records of clients: they cannot reclaim opens and locks after a restart", "path", r.dir, "error", err)
		s.info.Notes = append(s.info.Notes[:len(s.info.Notes):len(s.info.Notes)],
			fmt.Sprintf("opens and locks do not survive a restart, since their records cannot be used: %v", err))
		return &clientRecords{}, nil
	}
	return r, owners
}

func exportHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

func (r *clientRecords) load() (owners [][]byte, err error) {
	if err := os.Mkdir(r.dir, 0o700); err != nil && !os.IsExist(err) {
		return nil, err
	}
	// A client may have made a symbolic link of that name while it was not hidden.
	if info, err := os.Lstat(r.dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory: remove or rename it", r.dir)
	}
	names, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range names {
		if e.Name() == sessionsFile {
			continue
		}
		path := filepath.Join(r.dir, e.Name())
		owner, err := os.ReadFile(path)
		switch {
		case strings.HasSuffix(e.Name(), ".new") || err == nil && recordName(owner) != e.Name():
			// not complete
			_ = os.Remove(path)
		case err != nil:
			return nil, err
		case len(owners) < maxRecords:
			owners = append(owners, owner)
		}
	}
	return owners, nil
}

func recordName(owner []byte) string {
	sum := sha256.Sum256(owner)
	return hex.EncodeToString(sum[:])
}

// add records an owner.
func (r *clientRecords) add(owner []byte) error {
	if r.dir == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	path := filepath.Join(r.dir, recordName(owner))
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(owner)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	return r.sync()
}

// remove removes the records of owners, with one sync for all: a conflict may end many clients.
func (r *clientRecords) remove(owners [][]byte) {
	if r.dir == "" || len(owners) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	removed := false
	for _, owner := range owners {
		removed = os.Remove(filepath.Join(r.dir, recordName(owner))) == nil || removed
	}
	if removed {
		_ = r.sync()
	}
}

func (r *clientRecords) sync() error {
	d, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Fsync(int(d.Fd()))
}
