package bufpool

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// hugePage is the size of the huge pages that arenas are made of, in bytes. Smaller arenas than half of one are not.
const hugePage = 2 << 20

// UseHugePages has arenas that are mapped from now on made of huge pages of 2 MiB, as far as there are any: they cost a processor's and an adapter's
// translation tables a 512th of the entries. All memory of an arena is there when it is mapped, so that a pool of huge pages that is empty, or a limit of a
// control group, is an error and no signal. Ordinary memory takes its place then, and refused is called with the reason, every time, under the pool's lock.
// Arenas for the smallest buffers are ordinary memory in any case.
func (p *Pool) UseHugePages(refused func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = refused
}

// mmapLocked maps an arena of size bytes, or more. The pool is locked.
func (p *Pool) mmapLocked(size int) ([]byte, error) {
	if huge := (size + hugePage - 1) &^ (hugePage - 1); p.refused != nil && size >= hugePage/2 && (p.limit == 0 || p.mapped+int64(huge) <= p.limit) {
		mem, err := p.mapHuge(huge)
		if err == nil {
			p.huge += int64(huge)
			return mem, nil
		}
		p.refusals++
		p.refused(fmt.Errorf("bufpool: mapping %d bytes in huge pages: %w", huge, err))
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("bufpool: mapping %d bytes: %w", size, err)
	}
	return mem, nil
}

// mapHuge maps huge pages, all of which are there when it returns.
func mapHuge(size int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_HUGE_2MB)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return mem, nil
}
