package vfs

import "golang.org/x/sys/unix"

// ReadDir fills b with entries of a directory, to be read with Entries. cookie is 0, or the Off of
// the last entry read. It returns 0 at the end. The caller checks permissions.
func (fs *FS) ReadDir(n *Node, cookie int64, b []byte) (int, error) {
	if !n.IsDir() {
		return 0, unix.ENOTDIR
	}
	fd, err := n.readerFD()
	if err != nil {
		return 0, err
	}
	n.listing.Lock()
	defer n.listing.Unlock()
	// The start is read anew, whatever the descriptor has buffered.
	if n.position != cookie || cookie == 0 {
		if _, err := unix.Seek(fd, cookie, unix.SEEK_SET); err != nil {
			n.position = -1
			return 0, err
		}
	}
	for {
		var got int
		err = retry(func() (err error) {
			got, err = unix.Getdents(fd, b)
			return err
		})
		n.position = -1
		if err != nil {
			return 0, err
		}
		all := got
		for e, at := (Dirents{b: b[:got]}), 0; e.Next(); {
			n.position = e.Off
			end := got - len(e.b)
			if fs.hidden(n, e.Name) {
				got = at + copy(b[at:], b[end:got])
				e.b, end = b[at:got], at
			}
			at = end
		}
		if got > 0 || all == 0 {
			return got, nil
		}
	}
}
