package vfs

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const shards = 32

// table holds the open objects. With too many descriptors it closes those unused for longest, by a
// clock hand in each shard.
type table struct {
	log   *slog.Logger
	files atomic.Int64 // descriptors of nodes
	limit atomic.Int64 // the intended maximum
	hand  atomic.Uint32
	kick  chan struct{} // asks the janitor to sync unstable writes
	shard [shards]shard
}

type shard struct {
	mu    sync.Mutex
	nodes map[objectID]*Node
	hand  *Node // a ring of all nodes
	_     [64]byte
}

func (t *table) init(limit int, log *slog.Logger) {
	t.log, t.kick = log, make(chan struct{}, 1)
	t.limit.Store(int64(limit))
	for i := range t.shard {
		t.shard[i].nodes = map[objectID]*Node{}
	}
}

func (t *table) of(i *objectID) *shard {
	// Inode numbers are in the first words, in the file system's byte order.
	h := binary.LittleEndian.Uint64(i[headLen:]) * 0x9e3779b97f4a7c15
	h ^= binary.BigEndian.Uint64(i[headLen:]) * 0xc2b2ae3d27d4eb4f
	return &t.shard[h>>32%shards]
}

// get returns the node with a reference for the caller, or nil.
func (t *table) get(i *objectID) *Node {
	s := t.of(i)
	s.mu.Lock()
	n := s.nodes[*i]
	if n != nil {
		n.refs.Add(1)
	}
	s.mu.Unlock()
	if n != nil && !n.touched.Load() {
		n.touched.Store(true)
	}
	return n
}

// put enters n and returns it; if another node is there, it closes n and returns the other. The
// reference moves to the result.
func (t *table) put(n *Node) *Node {
	t.makeRoom(0)
	s := t.of(&n.id)
	s.mu.Lock()
	if old := s.nodes[n.id]; old != nil {
		old.refs.Add(1)
		s.mu.Unlock()
		n.close()
		return old
	}
	s.nodes[n.id] = n
	if s.hand == nil {
		n.prev, n.next, s.hand = n, n, n
	} else { // behind the hand: visited last
		n.prev, n.next = s.hand.prev, s.hand
		n.prev.next, n.next.prev = n, n
	}
	s.mu.Unlock()
	return n
}

func (s *shard) removeLocked(n *Node) bool {
	if s.nodes[n.id] != n {
		return false
	}
	delete(s.nodes, n.id)
	if n.next == n {
		s.hand = nil
	} else {
		n.prev.next, n.next.prev = n.next, n.prev
		if s.hand == n {
			s.hand = n.next
		}
	}
	n.prev, n.next = nil, nil
	n.dead.Store(true)
	return true
}

// remove takes n out.
func (t *table) remove(n *Node) {
	s := t.of(&n.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(n)
}

// makeRoom closes the nodes unused for longest until k more descriptors fit. Nodes in use may
// exceed the bound.
func (t *table) makeRoom(k int64) {
	if t.trim(k) {
		return
	}
	select { // nodes with unstable writes are synced first
	case t.kick <- struct{}{}:
	default:
	}
}

func (t *table) trim(k int64) bool {
	for tried := 0; tried < shards && t.files.Load()+k > t.limit.Load(); {
		s := &t.shard[t.hand.Add(1)%shards]
		if n := s.evict(); n != nil {
			n.close()
			tried = 0
		} else {
			tried++
		}
	}
	return t.files.Load()+k <= t.limit.Load()
}

// opened passes on the result of an open. If process or system is out of descriptors, it lowers the
// limit for good.
func (t *table) opened(fd int, err error) (int, error) {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		files := t.files.Load()
		t.limit.Store(max(16, min(t.limit.Load(), files-files/4)))
		t.log.Warn("out of file descriptors; keeping fewer files open", "files", files, "limit", t.limit.Load())
		t.makeRoom(0)
	}
	return fd, err
}

// evict takes out an unused node.
func (s *shard) evict() *Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 2 * len(s.nodes) {
		n := s.hand
		s.hand = n.next
		if n.touched.Swap(false) || n.refs.Load() > 0 || n.dirty() {
			continue
		}
		s.removeLocked(n)
		return n
	}
	return nil
}

func (t *table) closeAll() {
	for i := range t.shard {
		s := &t.shard[i]
		for _, n := range s.nodes {
			n.close()
		}
		s.nodes, s.hand = nil, nil
	}
}
