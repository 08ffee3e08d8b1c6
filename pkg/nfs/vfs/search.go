package vfs

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// searchTimeout is how long a caller waits for a search before EAGAIN, which costs an NFS client
// some seconds.
const searchTimeout = time.Second

// locate searches the whole directory for an object of which no name is known.
func (fs *FS) locate(i *objectID) (*Node, error) {
	ino, err := fs.inodeOf(i)
	if err != nil {
		return nil, err
	}
	s, err := fs.locator.enqueue(i, ino, fs.now(), fs.runSearch)
	if err != nil {
		return nil, err
	}
	missing := fs.locator.wait(s, searchTimeout)
	if n := fs.table.get(i); n != nil {
		return n, nil
	}
	if missing {
		return nil, unix.ESTALE
	}
	return nil, unix.EAGAIN
}

// runSearch searches while any object is wanted.
func (fs *FS) runSearch() {
	defer fs.locator.done.Done()
	for fs.locator.beginRound() {
		if ended, sure := fs.walk(); ended {
			fs.locator.giveUp(sure, fs.now())
		}
	}
}

// walk visits every entry of every directory. ended is false if it stopped early. sure is false if
// descriptors or memory were short, so an object may have been missed.
func (fs *FS) walk() (ended, sure bool) {
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
		from, rest := fs.root.path, path
		if below, ok := strings.CutPrefix(path, lastPath+"/"); ok && last >= 0 {
			from, rest = last, below
		}
		fd, err := fs.table.opened(openDeep(from, append([]byte(rest), 0), openDir))
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
				sure = !scarce(fs.visit(path, &e)) && sure
			}
			if fs.locator.stopped() {
				return false, false
			}
		}
		if fs.locator.idle() {
			return false, false
		}
	}
	return true, sure
}

func isDirectory(dir int, name []byte) bool {
	var st Stat
	return unix.Fstatat(dir, string(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// visit enters the object of e in the directory at path, if wanted, and the objects on the way, so
// that they are found by name next time.
func (fs *FS) visit(path string, e *Dirents) error {
	if !fs.locator.wants(e.Ino) {
		return nil
	}
	n := fs.root
	n.refs.Add(1)
	for name := range strings.SplitSeq(path+"/"+string(e.Name), "/") {
		if name == "." {
			continue
		}
		next, err := fs.openEntry(n, append([]byte(name), 0))
		n.Release()
		if err != nil { // renamed or removed meanwhile
			return err
		}
		n = next
	}
	fs.locator.found(e.Ino, &n.id)
	n.Release()
	return nil
}
