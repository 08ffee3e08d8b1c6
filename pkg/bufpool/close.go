package bufpool

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrClosed is returned by a closed pool.
var ErrClosed = errors.New("bufpool: pool is closed")

// Close unmaps all memory. While buffers are in use it fails and changes nothing. All users detach
// first. A second Close does nothing.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.classes {
		p.classes[k].mu.Lock()
		defer p.classes[k].mu.Unlock()
	}
	var n int64
	for k := range p.classes {
		n += p.classes[k].inUse
	}
	if n > 0 {
		return fmt.Errorf("bufpool: closing a pool of which %d buffers are in use", n)
	}
	p.closed = true
	for k := range p.classes {
		p.classes[k].free = nil
	}
	var errs []error
	for _, a := range p.arenas {
		if err := unix.Munmap(a.Memory); err != nil {
			errs = append(errs, fmt.Errorf("bufpool: unmapping: %w", err))
		}
		a.Memory = nil
	}
	p.arenas, p.mapped, p.huge = nil, 0, 0
	return errors.Join(errs...)
}
