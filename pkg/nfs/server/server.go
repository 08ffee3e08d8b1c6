// Package server is an NFS version 3 and MOUNT version 3 server (RFC 1813) for a directory, as an
// [oncrpc.Handler] for any transport.
//
// On a connection's receive loop it runs calls that cannot block: NULL, and GETATTR, ACCESS and
// READ of open objects with cached data, and short unstable WRITEs to open files, if the file
// system takes them without waiting. All others run on a bounded pool of workers. pkg/nfs/vfs has
// files, handles, permissions and identities.
//
// # Stable storage
//
// A reply reports only changes on stable storage (RFC 1813): SETATTR, CREATE, MKDIR, SYMLINK,
// MKNOD, REMOVE, RMDIR, RENAME and LINK sync the object and the directories first, each alone only
// if the file system's journal does not bring the others with it. So do WRITE with DATA_SYNC or
// FILE_SYNC, and COMMIT. No setting changes this. The write verifier changes with every start, and
// after every failed sync.
//
// # Retransmissions
//
// Replies of non-repeatable procedures are kept; see [Config].ReplyCache. They are RPC replies
// without a transport's header, so a retry can come by another connection, or with other chunks.
//
// With [Config].StateDir, all but WRITE's survive a kill of the process. The server judges an
// interrupted call by its names, or by the object that it made. It does not run the call again if
// that made, removed, renamed or linked something already, and does not truncate a file that has
// changed since. A loss of power may lose replies, since they are not synced.
//
// NLM and NSM get PROG_UNAVAIL: mount with nolock.
package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
)

// Config configures a Server. Root and Access are required; handles survive a restart only with Key
// or StateDir.
type Config struct {
	// Root is the exported directory.
	Root string
	// Name is the export's name: clients mount "/" or "/Name". It is part of the handles' key.
	Name string
	// Access are the access rules; see SetAccess.
	Access []Rule
	// AnonUID and AnonGID are the ids of squashed callers; 0 means 65534, nobody.
	AnonUID, AnonGID uint32
	// Key signs file handles, at least vfs.MinKey bytes. nil means a key in StateDir.
	Key []byte
	// OlderKeys are accepted too.
	OlderKeys [][]byte
	// StateDir is a directory outside Root for state that survives a restart, in files of mode
	// 0600: the key, unless Key is set, and the replies of non-repeatable calls. Empty: nothing
	// survives.
	StateDir string
	// Workers bounds the concurrent calls besides those on receive loops; 0 means four for each
	// processor, at least 16.
	Workers int
	// InlineRead is the longest READ, in bytes, on the receive loop; 0 means all, -1 none.
	InlineRead int
	// InlineWrite is the longest unstable WRITE, in bytes, on the receive loop; 0 means 64 KiB, -1
	// none.
	InlineWrite int
	// ReplyCache bounds the duplicate request cache.
	ReplyCache ReplyCacheLimits
	// NFS4 serves versions 4.1 and 4.2 too; nil means version 3 alone.
	NFS4 *NFS4Config
	// Files are options of the directory: MaxFiles, Recheck, SelfOnly, IndexOnly, Sync. Keys,
	// Scope, Hidden and Logger are ignored.
	Files vfs.Options
	// Logger gets messages for the administrator; nil discards them.
	Logger *slog.Logger

	// For tests: called after a call was recorded and before it runs, before a new object is
	// recorded, and after the reply was recorded.
	intended, making, answered func()
}

// Server serves one export. Its methods may be called concurrently.
type Server struct {
	cfg     Config
	log     *slog.Logger
	fs      *vfs.FS
	info    vfs.Info
	access  atomic.Pointer[access.Rules]
	workers workers
	replies replyCache
	mounts  mountList
	v4      *v4Server // nil without version 4
	closed  atomic.Bool
}

// New opens the directory. The server is ready for calls.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if cfg.AnonUID == 0 {
		cfg.AnonUID = 65534
	}
	if cfg.AnonGID == 0 {
		cfg.AnonGID = 65534
	}
	for _, f := range [...]*func(){&cfg.intended, &cfg.making, &cfg.answered} {
		if *f == nil {
			*f = func() {}
		}
	}
	if cfg.Workers < 0 {
		return nil, fmt.Errorf("nfs server: Workers is %d, must not be negative", cfg.Workers)
	}
	if cfg.Workers == 0 {
		cfg.Workers = max(16, 4*runtime.GOMAXPROCS(0))
	}
	if cfg.InlineRead == 0 {
		cfg.InlineRead = nfs3.MaxData
	}
	if cfg.InlineWrite == 0 {
		cfg.InlineWrite = 64 << 10
	}
	if strings.ContainsAny(cfg.Name, "/\x00") || len(cfg.Name) > vfs.MaxName {
		return nil, fmt.Errorf("nfs server: Name is %q, must be at most %d bytes without slash", cfg.Name, vfs.MaxName)
	}
	s := &Server{cfg: cfg, log: cfg.Logger}
	if err := s.SetAccess(cfg.Access); err != nil {
		return nil, err
	}
	root, err := s.checkStateDir()
	if err != nil {
		return nil, fmt.Errorf("nfs server: %w", err)
	}
	key, err := s.key()
	if err != nil {
		return nil, fmt.Errorf("nfs server: %w", err)
	}
	o := cfg.Files
	o.Key, o.OlderKeys, o.Scope, o.Logger = key, cfg.OlderKeys, cfg.Name, cfg.Logger
	if cfg.NFS4 != nil && cfg.NFS4.RecordsInRoot {
		o.Hidden = hiddenRecords
	}
	if s.fs, err = vfs.Open(cfg.Root, o); err != nil {
		return nil, fmt.Errorf("nfs server: %w", err)
	}
	info := s.fs.Info()
	s.log.Info("directory opened", "path", cfg.Root, "handles", info.Handles, "identities", info.Identities, "whole", info.Whole)
	for _, note := range info.Notes {
		s.log.Warn(note, "path", cfg.Root)
	}
	s.workers.init(cfg.Workers)
	s.replies.init(cfg.ReplyCache)
	s.info = info
	if cfg.StateDir != "" {
		s.openJournal(root)
	}
	if cfg.NFS4 != nil {
		s.v4 = newV4Server(s)
	}
	return s, nil
}

// openJournal loads the replies of an earlier process. Without the journal the server works, with a
// note.
func (s *Server) openJournal(root string) {
	path := s.journalPath(root)
	j, records, err := openJournal(path, s.fs.Root().Handle().Bytes(), s.log)
	if err != nil {
		s.log.Warn("no reply journal: a retransmission after a restart may run its call again", "path", path, "error", err)
		s.info.Notes = append(slices.Clone(s.info.Notes), fmt.Sprintf("replies do not survive a restart, since their journal cannot be used: %v", err))
		return
	}
	s.replies.restore(j, records)
}

// checkStateDir refuses a state directory within clients' reach. It returns the root without
// symbolic links.
func (s *Server) checkStateDir() (root string, err error) {
	if s.cfg.StateDir == "" {
		return "", nil
	}
	if root, err = filepath.EvalSymlinks(s.cfg.Root); err != nil {
		return "", err
	}
	state, err := filepath.EvalSymlinks(s.cfg.StateDir)
	if err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	if rel, err := filepath.Rel(root, state); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return "", fmt.Errorf("state directory %s is inside the exported directory %s: clients could read the key of file handles there; want a directory outside", state, root)
	}
	return root, nil
}

func (s *Server) key() ([]byte, error) {
	switch {
	case s.cfg.Key != nil:
		return s.cfg.Key, nil
	case s.cfg.StateDir == "":
		s.log.Warn("no state directory: file handles will be of no use after a restart", "path", s.cfg.Root)
		key := make([]byte, 32)
		rand.Read(key)
		return key, nil
	}
	return vfs.LoadKey(filepath.Join(s.cfg.StateDir, "handle.key"))
}

// SetKeys replaces Key and OlderKeys from the next handle on: the first key signs, all are
// accepted. After an error nothing has changed, unless it is an error of the reply journal.
func (s *Server) SetKeys(keys [][]byte) error {
	if err := s.fs.SetKeys(keys); err != nil {
		return fmt.Errorf("nfs server: %w", err)
	}
	if s.v4 != nil && s.v4.journal != nil {
		if err := s.v4.journal.setIdentity(s.fs.Root().Handle().Bytes()); err != nil {
			return fmt.Errorf("nfs server: session journal: %w", err)
		}
	}
	if j := s.replies.journal; j != nil {
		// A later process identifies the journal by the root's new handle.
		if err := j.setIdentity(s.fs.Root().Handle().Bytes()); err != nil {
			return fmt.Errorf("nfs server: reply journal: %w", err)
		}
	}
	return nil
}

// Info describes how the directory is served.
func (s *Server) Info() vfs.Info { return s.info }

// Stats are a server's figures.
type Stats struct {
	Files         int64  // open descriptors of files and directories
	Queued        int    // calls waiting for a worker
	Busy          int    // workers that run a call
	Mounts        int    // entries of DUMP
	CachedReplies int    // in the duplicate request cache
	CachedBytes   int64  // taken by it
	Replays       uint64 // retransmissions answered from it since the start
	Searches      uint64 // searches of the whole directory for a handle's object, since the start
}

// Stats returns the present figures.
func (s *Server) Stats() Stats {
	st := Stats{Files: s.fs.Files(), Searches: s.fs.Searches(), Mounts: s.mounts.len()}
	st.Queued, st.Busy = s.workers.load()
	st.CachedReplies, st.CachedBytes, st.Replays = s.replies.stats()
	return st
}

// Close waits for the running calls. It drops later calls; shut the transports down first.
func (s *Server) Close() error {
	if s.closed.Swap(true) {
		return errors.New("nfs server: closed twice")
	}
	s.workers.close()
	if s.v4 != nil {
		s.v4.close()
	}
	err := s.fs.Close()
	if s.replies.journal != nil {
		err = errors.Join(err, s.replies.journal.close())
	}
	return err
}

// ServeRPC implements oncrpc.Handler for versions 3 and 4 of the program 100003, and version 3 of
// 100005 and 100227.
func (s *Server) ServeRPC(c *oncrpc.Call) {
	switch {
	case s.closed.Load():
		c.Drop()
	case c.Program == nfs3.Program && c.Version == nfs3.Version:
		s.serveNFS(c)
	case c.Program == nfs3.MountProgram && c.Version == nfs3.MountVersion:
		s.serveMount(c)
	case c.Program == nfs3.ACLProgram && c.Version == nfs3.ACLVersion:
		s.serveACL(c)
	case c.Program == nfs4.Program && s.v4 != nil && c.Version == nfs4.Version:
		s.serveNFS4(c)
	case c.Program == nfs4.Program && s.v4 != nil:
		c.ReplyMismatch(nfs3.Version, nfs4.Version)
	case c.Program == nfs3.Program || c.Program == nfs3.MountProgram || c.Program == nfs3.ACLProgram:
		c.ReplyMismatch(3, 3)
	default:
		c.ReplyAccept(oncrpc.ProgUnavail)
	}
}

// procedure is a procedure of NFS.
type procedure struct {
	// run answers the call, on a worker.
	run func(*op)
	// nonblocking answers the call on the receive loop, without waiting. On false, run continues
	// where it stopped.
	nonblocking func(*op) bool
	// once: the call is not repeatable, so its reply is kept.
	once bool
	// journaled: not even after a kill of the process. WRITE is once but not journaled: a
	// repetition writes the same bytes.
	journaled bool
}

// procedures is set by init, since its functions refer to it.
var procedures [nfs3.Procedures]procedure

func init() {
	procedures = [nfs3.Procedures]procedure{
		nfs3.ProcGetAttr:     {run: getattr, nonblocking: getattrNonblocking},
		nfs3.ProcSetAttr:     {run: setattr, once: true, journaled: true},
		nfs3.ProcLookup:      {run: lookup},
		nfs3.ProcAccess:      {run: accessCheck, nonblocking: accessNonblocking},
		nfs3.ProcReadlink:    {run: readlink},
		nfs3.ProcRead:        {run: read, nonblocking: readNonblocking},
		nfs3.ProcWrite:       {run: write, nonblocking: writeNonblocking, once: true},
		nfs3.ProcCreate:      {run: create, once: true, journaled: true},
		nfs3.ProcMkdir:       {run: mkdir, once: true, journaled: true},
		nfs3.ProcSymlink:     {run: symlink, once: true, journaled: true},
		nfs3.ProcMknod:       {run: mknod, once: true, journaled: true},
		nfs3.ProcRemove:      {run: remove, once: true, journaled: true},
		nfs3.ProcRmdir:       {run: rmdir, once: true, journaled: true},
		nfs3.ProcRename:      {run: rename, once: true, journaled: true},
		nfs3.ProcLink:        {run: link, once: true, journaled: true},
		nfs3.ProcReaddir:     {run: readdir},
		nfs3.ProcReaddirPlus: {run: readdirplus},
		nfs3.ProcFSStat:      {run: fsstat},
		nfs3.ProcFSInfo:      {run: fsinfo},
		nfs3.ProcPathConf:    {run: pathconf},
		nfs3.ProcCommit:      {run: commit},
	}
}

func (s *Server) serveNFS(c *oncrpc.Call) {
	if c.Procedure >= nfs3.Procedures {
		c.ReplyAccept(oncrpc.ProcUnavail)
		return
	}
	if c.Procedure == nfs3.ProcNull {
		c.ReplyAccept(oncrpc.Success)
		return
	}
	s.serve(c, &procedures[c.Procedure], recallings[c.Procedure])
}

// serve runs a call of NFS or NFSACL. recalls is nil if it conflicts with no delegation.
func (s *Server) serve(c *oncrpc.Call, p *procedure, recalls *recalling) {
	rule := s.rule(c.Conn.Remote.Addr())
	if rule == nil {
		c.ReplyDenied(oncrpc.AuthTooWeak)
		return
	}
	o := s.opOf(c)
	if stat := o.authenticate(s, c, rule); stat != oncrpc.AuthOK {
		c.ReplyDenied(stat)
		return
	}
	o.procedure, o.recalls = p, recalls
	if p.once && !s.replies.enter(o) {
		return
	}
	if recalls != nil && s.delegated() && !o.undisturbed(recalls) {
		o.run = (*op).disturb
		o.submit()
		return
	}
	if p.nonblocking != nil && s.fs.Nonblocking() && p.nonblocking(o) {
		return
	}
	o.run = p.run
	o.submit()
}
