package v2

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/test/v2/faultinject"
)

// subsets of the extensions that can be offered.
var subsets = [][]string{
	{},
	{"TransportProperties"},
	{"TransportProperties", "MessageContinuation"},
	{"TransportProperties", "SendBasedPlacement"},
	{"TransportProperties", "MessageContinuation", "SendBasedPlacement"},
}

func has(list []string, name string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
	}
	return false
}

// TestChain: all work succeeds with any extensions, and groups are used where they are offered.
func TestChain(t *testing.T) {
	for _, ext := range subsets {
		t.Run(fmt.Sprint(ext), func(t *testing.T) {
			t.Parallel()
			s := &faultinject.Injector{}
			c := newChain(t, transport(ext, ""), transport(ext, ""), s)
			c.work("first")
			c.spoke(ext)
			if _, groups := s.Counts(); (groups > 0) != has(ext, "MessageContinuation") {
				t.Errorf("%d groups of several transmissions", groups)
			}
		})
	}
}

// TestWorkingGroup: all work succeeds in the working group's dialect, also when connections are
// lost between the parts of calls.
func TestWorkingGroup(t *testing.T) {
	const dialect = "{rpcRDMAVersions: [1, 2], version2Dialect: WorkingGroup}"
	const callMiddle = 9
	parts := func(m *faultinject.Message) bool {
		return m.FromDialer && len(m.Head) > 16 && m.Head[7] == wire.Version2 && m.Head[15] == callMiddle
	}
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost=%v", lost), func(t *testing.T) {
			t.Parallel()
			s := &faultinject.Injector{}
			if lost {
				s = &faultinject.Injector{Match: parts, Action: iwarptest.Cut, Times: 3, After: 1}
			}
			c := newChain(t, dialect, dialect, s)
			c.work("first")
			if hits, _ := s.Counts(); lost && hits != 3 {
				t.Errorf("the connection was lost %d times", hits)
			}
			c.spoke([]string{"TransportProperties"})
		})
	}
}

// TestLost: connections are lost while messages and groups are in transit. Every call is executed
// exactly once.
func TestLost(t *testing.T) {
	for _, ext := range subsets {
		for _, call := range []bool{true, false} {
			name, what := "behind a bulk message", faultinject.Bulk(call)
			if has(ext, "MessageContinuation") {
				name, what = "between transmissions", faultinject.FirstOfGroup(call)
			}
			t.Run(fmt.Sprintf("%v, %s, of a call %v", ext, name, call), func(t *testing.T) {
				t.Parallel() // most of the time is spent waiting for a new connection
				s := &faultinject.Injector{Match: what, Action: iwarptest.Cut, Times: 3, After: 1}
				c := newChain(t, transport(ext, ""), transport(ext, ""), s)
				c.work("first")
				if hits, _ := s.Counts(); hits != 3 {
					t.Errorf("the connection was lost %d times", hits)
				}
				c.spoke(ext)
			})
		}
	}
}

// TestNeverContinues: a group that stops delays no other call. When the connection is given up, its
// call is completed.
func TestNeverContinues(t *testing.T) {
	for _, ext := range [][]string{subsets[2], subsets[4]} {
		for _, call := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, of a call %v", ext, call), func(t *testing.T) {
				s := &faultinject.Injector{Match: faultinject.Continuation(call), Action: iwarptest.Hold, Times: 1, Injected: make(chan struct{})}
				c := newChain(t, transport(ext, ""), transport(ext, ""), s)
				done := make(chan struct{})
				go func() {
					defer close(done)
					c.work("first")
				}()
				select {
				case <-s.Injected:
				case <-done:
					t.Fatal("there was no group")
				}
				other, root := c.mount(config.TCP)
				for range 20 {
					if _, err := other.GetAttr(t.Context(), root); err != nil {
						t.Error(err)
					}
				}
				c.relay.CutAll()
				<-done
			})
		}
	}
}

// TestMissing: a continuation is missing. The next message interrupts the group, an error report
// follows, and the call is sent again by base means.
func TestMissing(t *testing.T) { inBulk(t, iwarptest.Drop) }

// TestTooMany: a group has a surplus continuation.
func TestTooMany(t *testing.T) { inBulk(t, iwarptest.Repeat) }

// inBulk injects a fault into continuations while data move, with small calls on the same
// connection throughout. The connection survives.
func inBulk(t *testing.T, action iwarptest.Action) {
	for _, ext := range [][]string{subsets[2], subsets[4]} {
		for _, call := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, of a call %v", ext, call), func(t *testing.T) {
				s := &faultinject.Injector{Match: faultinject.Continuation(call), Action: action, Times: 10, After: 2}
				c := newChain(t, transport(ext, ""), transport(ext, ""), s)
				c.bulk()
				if hits, _ := s.Counts(); hits != 10 || s.Connections() != 1 {
					t.Errorf("%d faults on %d connections, want 10 on one", hits, s.Connections())
				}
			})
		}
	}
}

// bulk writes and reads files that take several transmissions, with small calls on the same
// connection.
func (c *chain) bulk() {
	c.Helper()
	files, root := c.mount(config.TCP)
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, err := files.GetAttr(c.Context(), root); err != nil {
				c.Error(err)
				return
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	for k := range 20 {
		data := make([]byte, 40_000+1_013*k+k%2*100_000)
		_, _ = rand.Read(data)
		name := fmt.Sprint("file-", k)
		made, err := files.Create(c.Context(), root, name, nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
		if err != nil {
			c.Fatal(err)
		}
		if err := files.WriteAt(c.Context(), made.Handle, data, 0, nfs3.FileSync); err != nil {
			c.Fatal(err)
		}
		got := make([]byte, len(data))
		if n, err := files.ReadAt(c.Context(), made.Handle, got, 0); err != nil || n != len(data) || !bytes.Equal(got, data) {
			c.Errorf("%s: %d bytes come back, or others: %v", name, n, err)
		}
		if there, err := os.ReadFile(filepath.Join(c.dir, name)); err != nil || !bytes.Equal(there, data) {
			c.Errorf("%s: %d bytes lie there, or others: %v", name, len(there), err)
		}
	}
}

// TestTooSmall: the far side has small receives, short groups and few credits. Longer messages use
// chunks.
func TestTooSmall(t *testing.T) {
	for _, ext := range subsets {
		for _, little := range []string{"inlineThreshold: {call: 1Ki, reply: 1Ki}, credits: {max: 3}", "credits: {max: 1}"} {
			t.Run(fmt.Sprintf("%v, %s", ext, little), func(t *testing.T) {
				t.Parallel()
				rest := ", " + little
				if has(ext, "MessageContinuation") {
					rest += ", continuation: {maxCallTransmissions: 2, maxReplyTransmissions: 2}"
				}
				if has(ext, "SendBasedPlacement") {
					rest += ", placement: {receiveBuffer: 4Ki, minLength: 1}"
				}
				c := newChain(t, transport(ext, ""), transport(ext, rest), &faultinject.Injector{})
				c.work("first")
				c.spoke(ext)
			})
		}
	}
}

// TestSmallerThanAnnounced: receives are smaller than the far side announced. The connection that
// meets one is lost, and work continues on another.
func TestSmallerThanAnnounced(t *testing.T) {
	ext := subsets[4]
	s := &faultinject.Injector{}
	s.Match = func(m *faultinject.Message) bool {
		if m.FromDialer || m.Procedure != wire.ConnProp || m.Conn > 2 {
			return false
		}
		for b := m.Head[16:]; len(b) >= 4; b = b[4:] {
			switch binary.BigEndian.Uint32(b) {
			case 4<<10 + 64<<10:
				binary.BigEndian.PutUint32(b, 4<<10+128<<10)
			case 64 << 10:
				binary.BigEndian.PutUint32(b, 128<<10)
			}
		}
		return true
	}
	s.Times = -1
	c := newChain(t, transport(ext, ""), transport(ext, ""), s)
	c.work("first")
	if hits, _ := s.Counts(); hits != 2 || c.relay.Connections() < 4 {
		t.Errorf("%d faults, %d connections; want 2 and at least 4", hits, c.relay.Connections())
	}
}
