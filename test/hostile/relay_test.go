//go:build kernel

package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// machine is the machine name in the credentials of these tests' clients. Calls with another name
// are the gateway's own.
const machine = "hostile"

// relay stands between the proxies and the backend, and inspects the calls.
type relay struct {
	h        *env
	listener net.Listener
	pool     *bufpool.Pool
	running  sync.WaitGroup

	mu      sync.Mutex
	signers []*sign.Signer
	calls   []passed // the clients'
}

// passed is a call that went to the backend.
type passed struct {
	program, version, procedure uint32
	ops                         []uint32 // of a COMPOUND
	args                        []byte
}

func (p *passed) sequenced() bool { return len(p.ops) > 0 && p.ops[0] == schema.OpSequence }

func startRelay(h *env) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(h, err)
	r := &relay{h: h, listener: l, pool: h.pool()}
	r.running.Go(r.accept)
	h.Cleanup(func() { _ = l.Close(); r.running.Wait() })
	return r
}

func (r *relay) port() int { return r.listener.Addr().(*net.TCPAddr).Port }

// watch looks for handles signed by s among those for the backend.
func (r *relay) watch(s *sign.Signer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signers = append(r.signers, s)
}

// since returns the calls after the first n.
func (r *relay) since(n int) []passed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[n:len(r.calls):len(r.calls)]
}

func (r *relay) count() int { return len(r.since(0)) }

func (r *relay) accept() {
	for {
		front, err := r.listener.Accept()
		if err != nil {
			return
		}
		back, err := net.Dial("tcp", r.h.address(r.h.port))
		if err != nil {
			_ = front.Close() // the test ends
			continue
		}
		t := &tap{relay: r, waiting: map[uint32]schema.Proc{}}
		r.running.Go(func() {
			var wg sync.WaitGroup
			wg.Go(func() { t.pass(back, front, t.call); _ = back.Close() })
			wg.Go(func() { t.pass(front, back, t.reply); _ = front.Close() })
			wg.Wait()
		})
	}
}

// tap is one connection of a relay.
type tap struct {
	*relay
	mu      sync.Mutex
	waiting map[uint32]schema.Proc // clients' calls by XID
}

// pass forwards records, each after look has seen it.
func (t *tap) pass(to, from net.Conn, look func([]byte)) {
	for {
		var raw, record []byte
		for last := false; !last; {
			var mark [4]byte
			if _, err := io.ReadFull(from, mark[:]); err != nil {
				return
			}
			v := binary.BigEndian.Uint32(mark[:])
			last = v>>31 == 1
			part := make([]byte, v&^(1<<31))
			if _, err := io.ReadFull(from, part); err != nil {
				return
			}
			raw, record = append(append(raw, mark[:]...), part...), append(record, part...)
		}
		look(record)
		if _, err := to.Write(raw); err != nil {
			return
		}
	}
}

// call inspects a call to the backend.
func (t *tap) call(record []byte) {
	var c oncrpc.Call
	c.Init(t.pool, nil)
	c.Stream = append(c.Stream, record)
	if err := oncrpc.DecodeCall(&c); err != nil {
		t.h.Errorf("the backend gets what is no call: %v: %x", err, record)
		return
	}
	var who oncrpc.AuthSysParms
	if c.Cred.Flavor == oncrpc.AuthSys {
		if err := who.Decode(c.Cred); err != nil {
			t.h.Errorf("the backend gets a bad credential: %v", err)
		}
		if string(who.Machine) != machine {
			return
		}
	} else if c.Procedure == 0 {
		return
	}
	p := passed{program: c.Program, version: c.Version, procedure: c.Procedure, args: bytes.Clone(record[c.ArgsAt:])}
	proc := schema.Proc{Program: c.Program, Version: c.Version, Procedure: c.Procedure}
	var w schema.Walker
	var d xdr.Decoder
	d.ResetBytes(record[c.ArgsAt:])
	err := w.Args(proc, &d)
	for _, op := range w.Ops {
		p.ops = append(p.ops, op.Code)
		if op.Code == schema.OpPutRootFH || op.Code == schema.OpPutPubFH {
			t.h.Errorf("the backend gets operation %d of a client", op.Code)
		}
	}
	if err != nil || d.Left() > 0 {
		t.h.Errorf("the backend gets a call with bytes that nobody understands: %v, %d left: %x", err, d.Left(), p.args)
	}
	if c.Program == nfs4test.Mount {
		t.h.Errorf("the backend's MOUNT gets a client's call of procedure %d", c.Procedure)
	}
	for i := range w.Spans {
		switch s := &w.Spans[i]; {
		case s.Mark == schema.Handle:
			t.handle(s.B)
		case s.Mark == schema.Attr && s.Value == schema.AttrFileHandle:
			t.handle(s.B[4 : 4+binary.BigEndian.Uint32(s.B)])
		case s.Mark == schema.Name && string(s.B) == "..":
			t.h.Errorf("the backend gets a name that leads up: %x", p.args)
		}
	}
	t.mu.Lock()
	t.waiting[c.XID] = proc
	t.mu.Unlock()
	t.relay.mu.Lock()
	t.calls = append(t.calls, p)
	t.relay.mu.Unlock()
}

// handle inspects a handle for the backend.
func (t *tap) handle(b []byte) {
	if path, ok := t.h.outside[string(b)]; ok && !t.other(path) {
		t.h.Errorf("the backend gets the handle of %s", path)
	}
	t.relay.mu.Lock()
	defer t.relay.mu.Unlock()
	for _, s := range t.signers {
		if _, ok := s.Verify(b, sign.Max4); ok {
			t.h.Errorf("the backend gets the signed handle %x", b)
		}
	}
}

// reply inspects a reply of the backend.
func (t *tap) reply(record []byte) {
	var h oncrpc.ReplyHeader
	var d xdr.Decoder
	d.ResetBytes(record)
	if err := h.Decode(&d); err != nil {
		t.h.Errorf("the backend sends what is no reply: %v", err)
		return
	}
	t.mu.Lock()
	proc, ok := t.waiting[h.XID]
	delete(t.waiting, h.XID)
	t.mu.Unlock()
	if !ok || !h.Status.OK() {
		return
	}
	for _, s := range []string{secretName, secretDir, secretInside, secretText} {
		if bytes.Contains(record, []byte(s)) {
			t.h.Errorf("the backend was made to tell %q", s)
		}
	}
	if proc.Version != 4 {
		return // READDIRPLUS has the handle of "..", which the proxy takes out
	}
	var w schema.Walker
	if err := w.Results(proc, &d); err != nil {
		t.h.Errorf("the backend's results cannot be read: %v: %x", err, record)
	}
	for i := range w.Spans {
		if s := &w.Spans[i]; s.Mark == schema.Handle {
			if path, ok := t.h.outside[string(s.B)]; ok && !t.other(path) {
				t.h.Errorf("the backend was made to tell the handle of %s", path)
			}
		}
	}
}

// other reports whether a path belongs to the second export, which is outside of the first.
func (t *tap) other(path string) bool { return path == "/other" || path == "/other/file" }

func (p passed) String() string {
	return fmt.Sprintf("program %d version %d procedure %d %v", p.program, p.version, p.procedure, p.ops)
}
