package iwarp

import (
	crand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"

	"sluice.dev/sluice/pkg/rdma"
)

// region is memory that the peer may access under an STag.
type region struct {
	stag   uint32
	base   uint64 // tagged offset of mem[0]
	mem    []byte
	access rdma.Access
	valid  bool
	// pins counts Read Responses with bytes of mem on their way to the socket.
	pins int
	// waiting are completions of LocalInvalidate or Redirect that come with the last pin's end.
	waiting []revocation
}

// revocation is a LocalInvalidate or Redirect.
type revocation struct {
	id uint64
	op rdma.Opcode
}

// remembered is the number of invalidated STags in a table. A reply that invalidates may cross a
// LocalInvalidate, so an STag that was invalidated already must be distinguished from one that
// never existed.
const remembered = 1024

// stagTable holds the regions that one connection exposes. STags and offsets are random, so that
// they cannot be guessed from each other (RFC 5042 section 5.1).
type stagTable struct {
	mu      sync.Mutex
	random  *rand.ChaCha8
	regions map[uint32]*region // valid and remembered ones
	valid   int
	limit   int
	closed  bool
	dead    []*region // ring of the remembered, the oldest at next
	next    int
	free    []*region
}

func newSTagTable(limit int) *stagTable {
	var seed [32]byte
	crand.Read(seed[:]) // never fails: it would end the process
	return &stagTable{random: rand.NewChaCha8(seed), regions: map[uint32]*region{}, limit: limit}
}

// unusedLocked returns a random STag that is not in the table. The caller holds the lock.
func (t *stagTable) unusedLocked() uint32 {
	for {
		stag := uint32(t.random.Uint64())
		if _, taken := t.regions[stag]; stag != 0 && !taken {
			return stag
		}
	}
}

// expose makes mem accessible.
func (t *stagTable) expose(mem []byte, access rdma.Access) (rdma.Remote, error) {
	if access == 0 || access&^(rdma.RemoteRead|rdma.RemoteWrite) != 0 {
		return rdma.Remote{}, fmt.Errorf("iwarp: access rights %#x, want RemoteRead, RemoteWrite or both", uint8(access))
	}
	if uint64(len(mem)) > math.MaxUint32 {
		return rdma.Remote{}, fmt.Errorf("iwarp: exposed memory of %d bytes, at most %d are possible", len(mem), uint32(math.MaxUint32))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return rdma.Remote{}, net.ErrClosed
	}
	if t.valid >= t.limit {
		return rdma.Remote{}, fmt.Errorf("iwarp: %d regions are exposed, of %d (MaxRegions): %w", t.valid, t.limit, rdma.ErrExposed)
	}
	r := t.newRegionLocked()
	// Offsets stay below 2^56 and above 0, so that no region touches the ends of the range.
	*r = region{stag: t.unusedLocked(), base: t.random.Uint64()>>8&^0xfff + 1<<12, mem: mem, access: access, valid: true, waiting: r.waiting[:0]}
	t.regions[r.stag] = r
	t.valid++
	return rdma.Remote{Handle: r.stag, Offset: r.base}, nil
}

func (t *stagTable) newRegionLocked() *region {
	if n := len(t.free); n > 0 {
		r := t.free[n-1]
		t.free = t.free[:n-1]
		return r
	}
	return new(region)
}

// redirect gives the peer other memory under stag. It returns false if unpin will report the
// completion.
func (t *stagTable) redirect(stag uint32, mem []byte, id uint64) (complete bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.regions[stag]
	if r == nil || !r.valid {
		return true
	}
	if r.pins == 0 {
		r.mem = mem
		return true
	}
	// r leaves the table with the pins of the old memory
	fresh := t.newRegionLocked()
	*fresh = region{stag: stag, base: r.base, mem: mem, access: r.access, valid: true, waiting: fresh.waiting[:0]}
	t.regions[stag] = fresh
	r.stag, r.valid = 0, false
	r.waiting = append(r.waiting, revocation{id, rdma.Redirect})
	return false
}

// size returns the length of the memory under stag, -1 if it is not valid.
func (t *stagTable) size(stag uint32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.regions[stag]
	if r == nil || !r.valid {
		return -1
	}
	return len(r.mem)
}

// lookupLocked finds the valid region for an access to n bytes at to. codes are the answers for an
// unknown STag, out of bounds, missing rights, and an offset past 2^64. The caller holds the lock.
func (t *stagTable) lookupLocked(stag uint32, to uint64, n uint64, access rdma.Access, codes *accessCodes) (*region, error) {
	r := t.regions[stag]
	if r == nil || !r.valid {
		return nil, codes.stag.errorf("STag %08x is unknown or was invalidated", stag)
	}
	if r.access&access == 0 {
		return nil, codes.access.errorf("STag %08x has access rights %#x, needed is %#x", stag, uint8(r.access), uint8(access))
	}
	if to+n < to {
		return nil, codes.wrap.errorf("offset %#x and length %d pass 2^64", to, n)
	}
	if to < r.base || to+n > r.base+uint64(len(r.mem)) {
		return nil, codes.bounds.errorf("offset %#x and length %d are outside of STag %08x, which has %d bytes at %#x", to, n, stag, len(r.mem), r.base)
	}
	return r, nil
}

type accessCodes struct{ stag, bounds, access, wrap termCode }

var (
	// RFC 5041 has no code for missing rights.
	writeCodes = accessCodes{codeSTag, codeBounds, codeSTag, codeWrap}
	readCodes  = accessCodes{codeReadSTag, codeReadBounds, codeReadAccess, codeReadWrap}
)

// place returns the memory for an incoming RDMA Write segment.
func (t *stagTable) place(stag uint32, to uint64, n int) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.lookupLocked(stag, to, uint64(n), rdma.RemoteWrite, &writeCodes)
	if err != nil {
		return nil, err
	}
	off := to - r.base
	return r.mem[off : off+uint64(n)], nil
}

// checkRead validates an incoming Read Request.
func (t *stagTable) checkRead(stag uint32, to uint64, n uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.lookupLocked(stag, to, uint64(n), rdma.RemoteRead, &readCodes)
	return err
}

// pin returns memory for a Read Response. The region is not given back before unpin.
func (t *stagTable) pin(stag uint32, to uint64, n int) (*region, []byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, err := t.lookupLocked(stag, to, uint64(n), rdma.RemoteRead, &readCodes)
	if err != nil {
		return nil, nil, err
	}
	r.pins++
	off := to - r.base
	return r, r.mem[off : off+uint64(n)], nil
}

// unpin ends pin. It appends to done the revocations that waited for it.
func (t *stagTable) unpin(r *region, done []revocation) []revocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.pins--
	if r.pins == 0 && !r.valid {
		done = append(done, r.waiting...)
		t.bury(r)
	}
	return done
}

// bury moves an invalidated region without pins to the remembered ones.
func (t *stagTable) bury(r *region) {
	r.mem = nil
	if len(t.dead) < remembered {
		t.dead = append(t.dead, r)
		return
	}
	old := t.dead[t.next]
	delete(t.regions, old.stag)
	t.free = append(t.free, old)
	t.dead[t.next] = r
	t.next = (t.next + 1) % remembered
}

// invalidateLocal ends access. It returns false if unpin will report the completion of id. An
// unknown STag counts as invalidated.
func (t *stagTable) invalidateLocal(stag uint32, id uint64) (complete bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.regions[stag]
	if r == nil {
		return true
	}
	if r.valid {
		r.valid = false
		t.valid--
		if r.pins == 0 {
			t.bury(r)
			return true
		}
	}
	if r.pins > 0 {
		r.waiting = append(r.waiting, revocation{id, rdma.LocalInvalidate})
		return false
	}
	return true
}

// invalidateRemote ends access for the peer. pinned means that the peer's own Reads are still in
// progress.
func (t *stagTable) invalidateRemote(stag uint32) (pinned bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.regions[stag]
	if r == nil {
		return false, codeInvalidate.errorf("STag %08x to invalidate is unknown", stag)
	}
	if r.pins > 0 {
		return true, nil
	}
	if r.valid {
		r.valid = false
		t.valid--
		t.bury(r)
	}
	return false, nil
}

// clear removes all regions.
func (t *stagTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.regions)
	t.dead, t.free, t.valid, t.closed = nil, nil, 0, true
}
