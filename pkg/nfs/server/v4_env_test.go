package server

import (
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// newEnv4 is newEnv with version 4.
func newEnv4(t testing.TB, change func(*Config)) *env {
	return newEnv(t, func(c *Config) {
		c.NFS4 = &NFS4Config{}
		if change != nil {
			change(c)
		}
	})
}

// compound calls COMPOUND.
func (r *env) compound(minor int, ops ...nfs4test.Raw) *nfs4test.Results {
	r.t.Helper()
	return r.compoundOf(nfs4test.Fields("tag", minor, len(ops), slices.Concat(ops...)))
}

// compoundOf calls COMPOUND with encoded arguments.
func (r *env) compoundOf(args nfs4test.Raw) *nfs4test.Results {
	r.t.Helper()
	w := r.prepare(r.xid.Add(1), nfs4.Program, nfs4.Version, nfs4.ProcCompound, raw(args), 0).send().wait()
	if w.dropped || !w.status.OK() {
		r.t.Fatalf("dropped %v, status %v", w.dropped, w.status)
	}
	res, err := nfs4test.Read(w.reply[oncrpc.MinReplyLen:])
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// session4 is a session with the server of an env.
type session4 struct {
	*env
	owner    string
	verifier string
	client   uint64
	sequence uint32 // of the next CREATE_SESSION
	id       nfs4test.Raw
	slots    []uint32
	cache    bool
}

const testSlots = 4

// session makes a client and its session, and completes its recovery.
func (r *env) session(owner string) *session4 {
	r.t.Helper()
	s := r.client4(owner, "verifier")
	s.create()
	s.ok(nfs4test.Op(int(nfs4.OpReclaimComplete), false))
	return s
}

// client4 makes an unconfirmed client.
func (r *env) client4(owner, verifier string) *session4 {
	r.t.Helper()
	res := r.compound(1, nfs4test.Op(int(nfs4.OpExchangeID), nfs4test.Raw(verifier), owner, 0, 0, 0))
	if res.Status != 0 {
		r.t.Fatalf("EXCHANGE_ID: %v", nfs4.Status(res.Status))
	}
	var x nfs4.ExchangeIDRes
	x.Decode(opResult(res, 0))
	return &session4{env: r, owner: owner, verifier: verifier, client: x.ClientID, sequence: x.Sequence}
}

func opResult(r *nfs4test.Results, i int) *xdr.Decoder {
	var d xdr.Decoder
	d.ResetBytes(r.Op(i))
	return &d
}

func createSession(client uint64, sequence uint32, list ...any) nfs4test.Raw {
	if len(list) == 0 {
		list = []any{0, nfs4test.Channel(32<<10, 16, testSlots), nfs4test.Channel(4096, 4, 2), 0x40000000, 0}
	}
	return nfs4test.Op(int(nfs4.OpCreateSession), append([]any{client, sequence}, list...)...)
}

func (s *session4) create() {
	s.t.Helper()
	res := s.compound(1, createSession(s.client, s.sequence))
	if res.Status != 0 {
		s.t.Fatalf("CREATE_SESSION: %v", nfs4.Status(res.Status))
	}
	s.sequence++
	s.id = slices.Clone(res.Op(0)[:16])
	s.slots = make([]uint32, testSlots)
}

func (s *session4) seq(slot int) nfs4test.Raw {
	return nfs4test.Op(int(nfs4.OpSequence), s.id, s.slots[slot], slot, testSlots-1, s.cache)
}

// do sends operations in slot 0.
func (s *session4) do(ops ...nfs4test.Raw) *nfs4test.Results {
	s.t.Helper()
	s.slots[0]++
	return s.compound(2, append([]nfs4test.Raw{s.seq(0)}, ops...)...)
}

// ok is do for success.
func (s *session4) ok(ops ...nfs4test.Raw) *nfs4test.Results {
	s.t.Helper()
	res := s.do(ops...)
	if res.Status != 0 {
		s.t.Fatalf("%v in operation %d of %d", nfs4.Status(res.Status), len(res.Ops)-1, len(ops))
	}
	return res
}

// fails is do for a status of the last result.
func (s *session4) fails(want nfs4.Status, ops ...nfs4test.Raw) {
	s.t.Helper()
	if got := nfs4.Status(s.do(ops...).Status); got != want {
		s.t.Errorf("status %v, must be %v", got, want)
	}
}

// expect compares a status.
func expect(t testing.TB, what string, res *nfs4test.Results, want nfs4.Status) {
	t.Helper()
	if got := nfs4.Status(res.Status); got != want {
		t.Errorf("%s: %v, must be %v", what, got, want)
	}
}
