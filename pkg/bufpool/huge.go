package bufpool

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page, in bytes. Arenas below half of it use ordinary memory.
const hugePage = 2 << 20

// UseHugePages maps later arenas with huge pages of 2 MiB, where available: they take a 512th of
// the entries in the translation tables of processor and adapter. An arena's memory is allocated
// when it is mapped, so an empty pool of huge pages, or a control group's limit, is an error and no
// signal. Ordinary memory replaces it then, and refused is called with the reason each time, under
// the pool's lock. Arenas for the smallest buffers always use ordinary memory.
func (p *Pool) UseHugePages(refused func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = refused
}

// mmapLocked maps an arena of at least size bytes.
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

// mapHuge maps and allocates huge pages.
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
