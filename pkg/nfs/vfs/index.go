package vfs

import "sync"

// maxIndex bounds the remembered objects, to about 26 MB. Others take a search.
const maxIndex = 1 << 18

// index remembers the places of objects: with handles of kind "index", and where objects can be
// moved out of the root, of objects whose path the kernel does not know.
type index struct {
	mu     sync.Mutex
	places map[objectID]place
}

// place is a name in a directory.
type place struct {
	dir  objectID
	name string
}

func (x *index) remember(i, dir *objectID, n []byte) {
	if n[0] == '.' && (n[1] == 0 || n[1] == '.' && n[2] == 0) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if old, ok := x.places[*i]; ok && old.dir == *dir && old.name == string(n[:len(n)-1]) {
		return
	}
	if x.places == nil {
		x.places = map[objectID]place{}
	}
	for k := range x.places {
		if len(x.places) < maxIndex {
			break
		}
		delete(x.places, k)
	}
	x.places[*i] = place{*dir, string(n[:len(n)-1])}
}

func (x *index) place(i *objectID) (place, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.places[*i]
	return n, ok
}
