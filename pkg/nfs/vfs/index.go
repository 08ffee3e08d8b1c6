package vfs

import "sync"

// maxIndex bounds the remembered objects, to about 26 MB. Others take a search.
const maxIndex = 1 << 18

// maxDepth bounds the names of a path, since stale entries may form a loop.
const maxDepth = 1 << 16

// index remembers the places of objects: with handles of kind "index", and where objects can be
// moved out of the root, of objects whose path the kernel does not know.
type index struct {
	mu     sync.Mutex
	places map[id]name
}

// name is a name in a directory.
type name struct {
	dir  id
	name string
}

func (x *index) remember(i, dir *id, n []byte) {
	if n[0] == '.' && (n[1] == 0 || n[1] == '.' && n[2] == 0) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if old, ok := x.places[*i]; ok && old.dir == *dir && old.name == string(n[:len(n)-1]) {
		return
	}
	if x.places == nil {
		x.places = map[id]name{}
	}
	for k := range x.places {
		if len(x.places) < maxIndex {
			break
		}
		delete(x.places, k)
	}
	x.places[*i] = name{*dir, string(n[:len(n)-1])}
}

func (x *index) place(i *id) (name, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.places[*i]
	return n, ok
}

// openByNames opens the object of i by its remembered names, and searches for it if they fail.
func (x *index) openByNames(fs *FS, i *id) (*Node, error) {
	// From the object up to a directory that is open, then down again.
	var names []string
	at := *i
	var dir *Node
	for dir == nil {
		n, ok := x.place(&at)
		if !ok || len(names) > maxDepth {
			return fs.locator.locate(i)
		}
		names = append(names, n.name)
		at = n.dir
		if fs.kernel { // found by its handle
			var err error
			if dir, err = fs.find(&at); passing(err) {
				return nil, err
			} else if err != nil {
				return fs.locator.locate(i)
			}
		} else if dir = fs.table.get(&at); dir != nil && !fs.Fresh(dir) {
			dir.Release()
			dir = nil
		}
	}
	for k := len(names) - 1; k >= 0; k-- {
		n, err := fs.openEntry(dir, append([]byte(names[k]), 0))
		dir.Release()
		if err == nil {
			dir = n
			continue
		}
		if passing(err) {
			return nil, err
		}
		return fs.locator.locate(i)
	}
	if dir.id != *i {
		dir.Release()
		return fs.locator.locate(i)
	}
	return dir, nil
}
