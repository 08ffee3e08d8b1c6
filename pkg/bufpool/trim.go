package bufpool

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Trim unmaps arenas of which no buffer was used since the last call. Called once a minute, it
// returns the memory of a burst after one to two minutes. Since the last buffer freed is the next
// one used, a steady load uses few arenas.
//
// Users get their undo called for each such arena before it is unmapped.
func (p *Pool) Trim() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	p.arenas = slices.DeleteFunc(p.arenas, func(a *Arena) bool {
		if !p.classes[a.class].disuse(a) {
			return false
		}
		for at := range p.attached {
			at.undo(a)
		}
		p.mapped -= int64(len(a.Memory))
		p.huge -= a.huge
		if err := unix.Munmap(a.Memory); err != nil {
			errs = append(errs, fmt.Errorf("bufpool: unmapping: %w", err))
		}
		a.Memory = nil
		return true
	})
	return errors.Join(errs...)
}

// disuse removes an unused arena's buffers from the free list. If the arena was used since the last
// call, it returns false and clears the mark.
func (c *class) disuse(a *Arena) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.used || a.inUse > 0 {
		a.used = a.inUse > 0
		return false
	}
	for at := &c.free; *at != nil; {
		if b := *at; b.arena == a {
			*at = b.next
		} else {
			at = &b.next
		}
	}
	return true
}
