package vfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// searchTimeout is how long a caller waits for a search before EAGAIN, which costs an NFS
	// client some seconds.
	searchTimeout = time.Second
	// maxWaiting bounds the callers that wait, so that a search does not occupy all workers.
	maxWaiting = 4
	// missingTTL is how long the result of a vain search holds.
	missingTTL = 10 * time.Second
)

// locator searches the whole directory for objects by id. One search serves all callers.
type locator struct {
	fs      *FS
	mu      sync.Mutex
	wanted  map[uint64][]*search // by inode number
	missing map[id]int64         // not found; valid until then
	running bool
	waiting int
	count   uint64 // of searches
	stop    chan struct{}
	done    sync.WaitGroup
}

// search is a wanted object.
type search struct {
	id    id
	round bool          // wanted before the running search began
	done  chan struct{} // closed when the object is in the table, or the search ended without it
}

func (l *locator) init(fs *FS) {
	l.fs, l.wanted, l.missing, l.stop = fs, map[uint64][]*search{}, map[id]int64{}, make(chan struct{})
}

func (l *locator) close() {
	close(l.stop)
	l.done.Wait()
}

// locate returns an object of which no name is known.
func (l *locator) locate(i *id) (*Node, error) {
	s, err := l.enqueue(i)
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(searchTimeout)
	defer timeout.Stop()
	select {
	case <-s.done:
	case <-timeout.C:
	case <-l.stop:
	}
	l.mu.Lock()
	l.waiting--
	_, missing := l.missing[*i]
	l.mu.Unlock()
	if n := l.fs.table.get(i); n != nil {
		return n, nil
	}
	if missing {
		return nil, unix.ESTALE
	}
	return nil, unix.EAGAIN
}

// enqueue adds a wanted object, and starts a search if none is running.
func (l *locator) enqueue(i *id) (*search, error) {
	ino, err := l.fs.inodeOf(i)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.fs.now()
	for k, until := range l.missing {
		if until < now {
			delete(l.missing, k)
		}
	}
	if _, missing := l.missing[*i]; missing {
		return nil, unix.ESTALE
	}
	var s *search
	for _, w := range l.wanted[ino] {
		if w.id == *i {
			s = w
		}
	}
	if s == nil {
		s = &search{id: *i, done: make(chan struct{})}
		l.wanted[ino] = append(l.wanted[ino], s)
	}
	if !l.running {
		l.running = true
		l.count++
		l.done.Add(1)
		go l.run()
	}
	if l.waiting >= maxWaiting {
		return nil, unix.EAGAIN
	}
	l.waiting++
	return s, nil
}

// inodeOf returns the inode number of an id.
func (fs *FS) inodeOf(i *id) (uint64, error) {
	if i.kind() == kindIndex {
		return i.ino(), nil
	}
	var h rawHandle
	i.raw(&h)
	fd, err := fs.table.opened(openByHandle(fs.mount, &h, openPath))
	if err != nil {
		return 0, staleIfGone(err)
	}
	defer unix.Close(fd)
	var st Stat
	err = fstatBlocking(fd, &st)
	return st.Ino, err
}

// run searches while any object is wanted.
func (l *locator) run() {
	defer l.done.Done()
	for {
		l.mu.Lock()
		if len(l.wanted) == 0 || l.stopped() {
			l.running = false
			l.mu.Unlock()
			return
		}
		for _, list := range l.wanted {
			for _, s := range list {
				s.round = true
			}
		}
		l.mu.Unlock()
		if ended, sure := l.walk(); ended {
			l.giveUp(sure)
		}
	}
}

func (l *locator) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// giveUp ends the searches that a whole walk did not satisfy. Unless sure, the walk may have missed
// something, and no object counts as missing.
func (l *locator) giveUp(sure bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.fs.now() + int64(missingTTL)
	for ino, list := range l.wanted {
		var left []*search
		for _, s := range list {
			if !s.round {
				left = append(left, s)
				continue
			}
			if sure {
				l.missing[s.id] = until
			}
			close(s.done)
		}
		if l.wanted[ino] = left; left == nil {
			delete(l.wanted, ino)
		}
	}
}

// walk visits every entry of every directory. ended is false if it stopped early. sure is false if
// descriptors or memory were short, so an object may have been missed.
func (l *locator) walk() (ended, sure bool) {
	sure = true
	dirs := []string{"."}
	buf := make([]byte, 64<<10)
	// The last directory is often above the next one, which shortens the way to a deep one.
	last, lastPath := -1, ""
	defer func() {
		if last >= 0 {
			unix.Close(last)
		}
	}()
	for len(dirs) > 0 {
		path := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		from, rest := l.fs.root.path, path
		if below, ok := strings.CutPrefix(path, lastPath+"/"); ok && last >= 0 {
			from, rest = last, below
		}
		fd, err := l.fs.table.opened(openDeep(from, append([]byte(rest), 0), openDir))
		if err != nil { // removed meanwhile, or not readable
			sure = sure && !scarce(err)
			continue
		}
		if last >= 0 {
			unix.Close(last)
		}
		last, lastPath = fd, path
		for {
			n, err := unix.Getdents(fd, buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n <= 0 {
				sure = sure && !scarce(err)
				break
			}
			for e := (Dirents{b: buf[:n]}); e.Next(); {
				if bytes.Equal(e.Name, dot) || bytes.Equal(e.Name, dotdot) {
					continue
				}
				if e.Type == unix.DT_DIR || (e.Type == unix.DT_UNKNOWN && isDirectory(fd, e.Name)) {
					dirs = append(dirs, path+"/"+string(e.Name))
				}
				sure = !scarce(l.look(path, &e)) && sure
			}
			if l.stopped() {
				return false, false
			}
		}
		l.mu.Lock()
		left := len(l.wanted)
		l.mu.Unlock()
		if left == 0 {
			return false, false
		}
	}
	return true, sure
}

func isDirectory(dir int, name []byte) bool {
	var st Stat
	return unix.Fstatat(dir, string(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// look enters the object of e in the directory at path, if wanted, and the objects on the way, so
// that they are found by name next time.
func (l *locator) look(path string, e *Dirents) error {
	l.mu.Lock()
	list := l.wanted[e.Ino]
	l.mu.Unlock()
	if list == nil {
		return nil
	}
	n := l.fs.root
	n.refs.Add(1)
	for name := range strings.SplitSeq(path+"/"+string(e.Name), "/") {
		if name == "." {
			continue
		}
		next, err := l.fs.openEntry(n, append([]byte(name), 0))
		n.Release()
		if err != nil { // renamed or removed meanwhile
			return err
		}
		n = next
	}
	l.found(e.Ino, &n.id)
	n.Release()
	return nil
}

func (l *locator) found(ino uint64, i *id) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.wanted[ino]
	for k, s := range list {
		if s.id == *i {
			close(s.done)
			list = append(list[:k:k], list[k+1:]...)
			break
		}
	}
	if l.wanted[ino] = list; len(list) == 0 {
		delete(l.wanted, ino)
	}
}

var (
	dot    = []byte(".")
	dotdot = []byte("..")
)

// Dirents iterates over the result of getdents64(2).
type Dirents struct {
	// Ino, Off (the cookie of the next entry), Type (DT_DIR and so on) and Name describe the
	// present entry; Name is a view of the buffer.
	Ino  uint64
	Off  int64
	Type uint8
	Name []byte

	b []byte
}

// Next advances to the next entry; false at the end.
func (d *Dirents) Next() bool {
	const fixed = 19
	if len(d.b) < fixed {
		return false
	}
	size := int(binary.NativeEndian.Uint16(d.b[16:]))
	if size < fixed || size > len(d.b) {
		return false
	}
	d.Ino = binary.NativeEndian.Uint64(d.b)
	d.Off = int64(binary.NativeEndian.Uint64(d.b[8:]))
	d.Type = d.b[18]
	d.Name = d.b[fixed:size]
	if k := bytes.IndexByte(d.Name, 0); k >= 0 {
		d.Name = d.Name[:k]
	}
	d.b = d.b[size:]
	return true
}
