// Package idmap maps the users and groups of this host between numbers and names, for owners of NFS
// version 4.
package idmap

import (
	"os/user"
	"strconv"
	"sync"
	"time"
)

const (
	// keep is how long an answer of the host holds, found or not.
	keep = 5 * time.Minute
	// most bounds the answers that are kept.
	most = 4096
)

// Map has the users or the groups of a host. Its methods may be called concurrently.
type Map struct {
	// name and id ask the host, which may know neither.
	name func(id string) (string, bool)
	id   func(name string) (string, bool)

	mu    sync.Mutex
	names map[uint32]answer
	ids   map[string]answer
}

// answer is one of the host.
type answer struct {
	name  string
	id    uint32
	known bool
	until time.Time
}

// Users and Groups are those of this host.
var (
	Users = newMap(
		func(id string) (string, bool) {
			u, err := user.LookupId(id)
			if err != nil {
				return "", false
			}
			return u.Username, true
		},
		func(name string) (string, bool) {
			u, err := user.Lookup(name)
			if err != nil {
				return "", false
			}
			return u.Uid, true
		})
	Groups = newMap(
		func(id string) (string, bool) {
			g, err := user.LookupGroupId(id)
			if err != nil {
				return "", false
			}
			return g.Name, true
		},
		func(name string) (string, bool) {
			g, err := user.LookupGroup(name)
			if err != nil {
				return "", false
			}
			return g.Gid, true
		})
)

func newMap(name, id func(string) (string, bool)) *Map {
	return &Map{name: name, id: id, names: map[uint32]answer{}, ids: map[string]answer{}}
}

// Name returns the name of an id, and whether the host knows it.
func (m *Map) Name(id uint32) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	a, ok := m.names[id]
	if !ok || now.After(a.until) {
		a = answer{until: now.Add(keep)}
		a.name, a.known = m.name(strconv.FormatUint(uint64(id), 10))
		if len(m.names) >= most {
			clear(m.names)
		}
		m.names[id] = a
	}
	return a.name, a.known
}

// ID returns the id of a name, and whether the host knows it.
func (m *Map) ID(name []byte) (uint32, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	a, ok := m.ids[string(name)]
	if !ok || now.After(a.until) {
		a = answer{until: now.Add(keep)}
		if s, known := m.id(string(name)); known {
			n, err := strconv.ParseUint(s, 10, 32)
			a.id, a.known = uint32(n), err == nil
		}
		if len(m.ids) >= most {
			clear(m.ids)
		}
		m.ids[string(name)] = a
	}
	return a.id, a.known
}
