package rewrite

import (
	"bytes"
	"crypto/sha256"
	"math"
	"slices"
	"testing"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// alone runs a COMPOUND outside a session.
func alone(t *testing.T, x *Export, minor int, call, sent, reply, got raw) {
	t.Helper()
	var c Call
	in := arrived(t, compoundV4(minor, call))
	forwarded, _ := sendV4(t, &c, x, &Caller{}, in)
	sameBytes(t, "the call", forwarded, compoundV4(minor, sent))
	answer := answerV4(t, &c, x, in, resultsOf(0, reply))
	sameBytes(t, "the reply", answer, resultsOf(0, got))
	readable(t, &nfsv4.Compound4args{}, forwarded[in.ArgsAt:])
	readable(t, &nfsv4.Compound4res{}, answer[oncrpc.MinReplyLen:])
}

// TestExchangeID checks that owners are made distinct, and layouts are never offered.
func TestExchangeID(t *testing.T) {
	x := exportV4(t, sign.Required)
	uid := string(x.UID)
	long := string(bytes.Repeat([]byte("x"), 1020))
	digest := sha256.Sum256([]byte(long))
	verifier := uint64(99)
	for _, test := range []struct {
		name, owner, sent      string
		flags, sentFlags       int
		major, gotMajor, scope string
		reply, got             int
	}{
		{"short", "client", "client" + uid, 0x101, 0x10101, "server", "server" + uid, "scope" + uid, 0x10001, 0x10001},
		{"pNFS", "client", "client" + uid, 0x60003, 0x10003, "server", "server" + uid, "scope" + uid, 0x70003, 0x10003},
		{"empty", "", uid, 0, 0x10000, "", uid, "scope" + uid, 0, 0x10000},
		{"long", long, string(digest[:]) + uid, 0, 0x10000, long, string(digest[:]) + uid, "scope" + uid, 0, 0x10000},
	} {
		t.Run(test.name, func(t *testing.T) {
			alone(t, x, 1,
				op(schema.OpExchangeID, verifier, test.owner, test.flags, 0, 1, "domain", "name", uint64(1), 2),
				op(schema.OpExchangeID, verifier, test.sent, test.sentFlags, 0, 1, "domain", "name", uint64(1), 2),
				ok(schema.OpExchangeID, uint64(5), 1, test.reply, 0, uint64(3), test.major, "scope", 0),
				ok(schema.OpExchangeID, uint64(5), 1, test.got, 0, uint64(3), test.gotMajor, test.scope, 0))
		})
	}
	// State protection has arms of its own.
	alone(t, x, 2,
		op(schema.OpExchangeID, verifier, "client", 0x10000, 1, bitmap(53), bitmap(38), 0),
		op(schema.OpExchangeID, verifier, "client"+uid, 0x10000, 1, bitmap(53), bitmap(38), 0),
		ok(schema.OpExchangeID, uint64(5), 1, 0x10000, 1, bitmap(53), bitmap(), uint64(3), "a", "b", 0),
		ok(schema.OpExchangeID, uint64(5), 1, 0x10000, 1, bitmap(53), bitmap(), uint64(3), "a"+uid, "b"+uid, 0))
}

// TestSetClientID checks that a 4.0 client is made distinct, and gets no callbacks.
func TestSetClientID(t *testing.T) {
	x := exportV4(t, sign.Off)
	alone(t, x, 0,
		op(schema.OpSetClientID, uint64(1), "client", 0x40000000, "tcp6", "::1.8.1", 7),
		op(schema.OpSetClientID, uint64(1), "client"+string(x.UID), 0x40000000, "tcp", "0.0.0.0.0.0", 7),
		ok(schema.OpSetClientID, uint64(1), uint64(2)), ok(schema.OpSetClientID, uint64(1), uint64(2)))
}

// limits is a channel_attrs4.
func limits(ch channel, ird ...any) raw {
	b := fields(28, ch.request, ch.response, ch.cached, ch.ops, 64, len(ird))
	return append(b, fields(ird...)...)
}

// createSession is a CREATE_SESSION and its result.
func createSession(flags int, fore, back raw) (call, reply raw) {
	return op(schema.OpCreateSession, uint64(5), 1, flags, fore, back, 0x40000000, 1, 1, 9, "host", 0, 0, 0),
		ok(schema.OpCreateSession, stateID, 1, flags, fore, back)
}

// TestCreateSession uses the limits of Linux and its server.
func TestCreateSession(t *testing.T) {
	x := exportV4(t, sign.Required)
	fore, back := channel{1049620, 1049480, 3428, 8}, channel{4068, 4068, 0, 2}
	call, _ := createSession(3|connRDMA, limits(fore, 5), limits(back, 6))
	sent, _ := createSession(3,
		limits(channel{1049620 + 592, 1049480 - 64 - 12, 3428 - 64 - 12, 12}), limits(channel{4068 - 16, 4068, 0, 2}))
	_, reply := createSession(3|connRDMA, limits(channel{1049620, 1049480 - 64 - 12, 3428 - 64 - 12, 12}, 7), limits(channel{4068 - 16, 4068, 0, 2}, 8))
	_, got := createSession(3, limits(channel{1049620 - 592, 1049480, 3428, 8}), limits(channel{4068, 4068, 0, 2}))
	alone(t, x, 1, call, sent, reply, got)
}

// TestSmallSession checks that the request for a session with short replies leaves room for tags.
func TestSmallSession(t *testing.T) {
	x := exportV4(t, sign.Required)
	fore, back := channel{1000, 400, 120, 64}, channel{300, 300, 0, 8}
	call, _ := createSession(0, limits(fore), limits(back))
	// 13 handles fit in a reply of 400 bytes, 2 in a reply of 120, and 8 in a callback of 300.
	asked, askedBack := limits(channel{1000 + 592, 400 - 13*8 - 12, 120 - 2*8 - 12, 68}), limits(channel{300 - 8*8, 300, 0, 8})
	sent, _ := createSession(0, asked, askedBack)
	_, reply := createSession(0, asked, askedBack)
	_, got := createSession(0, limits(fore), limits(back))
	alone(t, x, 1, call, sent, reply, got)
}

// TestMaxOperations checks that the client's limit holds, even if the backend takes more.
func TestMaxOperations(t *testing.T) {
	x := exportV4(t, sign.Off)
	fore, back := channel{1000, 1000, 1000, 8}, channel{4096, 4096, 0, 2}
	call, _ := createSession(0, limits(fore), limits(back))
	asked := limits(channel{1000 + 592, 1000 - 12, 1000 - 12, 12})
	sent, _ := createSession(0, asked, limits(back))
	_, reply := createSession(0, asked, limits(back))
	_, got := createSession(0, limits(fore), limits(back))
	alone(t, x, 1, call, sent, reply, got)
	send := func(session raw, n int) (forwarded, answer []byte, call []byte) {
		ops := []raw{op(schema.OpSequence, session, 1, 0, 0, 1), putFH(someFH)}
		call = compoundV4(1, append(ops, slices.Repeat([]raw{getFH}, n-len(ops))...)...)
		var c Call
		forwarded, answer = sendV4(t, &c, x, &Caller{}, arrived(t, call))
		return forwarded, answer, call
	}
	forwarded, _, want := send(stateID, 8)
	sameBytes(t, "as many as may be", forwarded, want)
	_, answer, _ := send(stateID, 9)
	sameBytes(t, "one more", answer, resultsOf(errTooManyOps, op(schema.OpSequence, errTooManyOps)))
	forwarded, _, want = send(raw("another session!"), 9)
	sameBytes(t, "those of a session that others have seen made", forwarded, want)
	for i := range maxSessions {
		x.sessions.remember(sessionID{byte(i), byte(i >> 8), 1}, 64)
	}
	if n := len(x.sessions.known.Load().ops); n != maxSessions {
		t.Errorf("%d sessions are remembered, want %d", n, maxSessions)
	}
	forwarded, _, want = send(stateID, 9)
	sameBytes(t, "those of a session that is forgotten", forwarded, want)
}

// TestBackChannel checks that the client gets its own ca_maxoperations and ca_maxrequests of the
// back channel, whatever the gateway takes.
func TestBackChannel(t *testing.T) {
	x := exportV4(t, sign.Required)
	fore, back := channel{1 << 20, 1 << 20, 4096, 8}, channel{8192, 8192, 4096, 500}
	sentFore, sentBack := limits(channel{1<<20 + 592, 1<<20 - 64 - 12, 4096 - 64 - 12, 12}), limits(channel{8192 - 512, 8192, 4096, 64})
	call, _ := createSession(0, limits(fore), limits(back))
	sent, _ := createSession(0, sentFore, sentBack)
	_, reply := createSession(0, sentFore, sentBack)
	_, got := createSession(0, limits(fore), limits(back))
	alone(t, x, 1, call, sent, reply, got)
	// The backend's lower limits pass.
	_, reply = createSession(0, sentFore, limits(channel{4096, 2048, 0, 16}))
	_, got = createSession(0, limits(fore), limits(channel{4096 + 512, 2048, 0, 16}))
	alone(t, x, 1, call, sent, reply, got)
}

// TestLimits checks that no message exceeds its receiver's limit.
func TestLimits(t *testing.T) {
	exports := []*Export{exportV4(t, sign.Required), exportV4(t, sign.Off)}
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.SampledFrom(exports).Draw(t, "export")
		limit := rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 5000))
		draw := func(name string) channel {
			return channel{limit.Draw(t, name+" request"), limit.Draw(t, name+" response"), limit.Draw(t, name+" cached"), limit.Draw(t, name+" ops")}
		}
		client := draw("client")
		asked, backAsked := client.foreRequest(x), client.backRequest(x)
		// A backend grants no more than requested.
		g := draw("backend")
		g = channel{min(g.request, asked.request), min(g.response, asked.response), min(g.cached, asked.cached), min(g.ops, asked.ops)}
		granted := client.foreGrant(x, g)
		if granted.request > client.request || granted.response > client.response || granted.cached > client.cached || granted.ops > client.ops {
			t.Fatalf("asked %+v, granted %+v", client, granted)
		}
		if granted.request > 0 && uint64(granted.request)+maxInserts*insertLen > uint64(g.request) {
			t.Fatalf("a request of %d bytes can exceed the backend's %d", granted.request, g.request)
		}
		if granted.ops > 0 && granted.ops+maxInserts > g.ops {
			t.Fatalf("%d operations can exceed the backend's %d", granted.ops, g.ops)
		}
		for _, r := range [][2]uint32{{g.response, granted.response}, {g.cached, granted.cached}} {
			// As many handles as fit in the backend's reply.
			tags := uint64(min(granted.ops, g.ops, saturatingSub(r[0], minReply4)/minHandle4)) * uint64(x.Signer.Overhead())
			if r[0] > 0 && uint64(r[0])+tags+maxRefusal > uint64(r[1]) {
				t.Fatalf("a reply of %d bytes can exceed the client's %d, with %d operations", r[0], r[1], granted.ops)
			}
		}
		b := channel{min(g.request, backAsked.request), client.response, client.cached, min(g.ops, backAsked.ops)}
		backTold := client.backGrant(x, b)
		tags := uint64(min(b.ops, saturatingSub(b.request, minCallback4)/minHandle4)) * uint64(x.Signer.Overhead())
		if backTold.request > client.request || b.request > 0 && uint64(b.request)+tags > uint64(backTold.request) {
			t.Fatalf("a callback of %d bytes can exceed the client's %d, of %d", b.request, backTold.request, client.request)
		}
		if b.ops > maxSessionOps {
			t.Fatalf("%d callbacks at once", b.ops)
		}
	})
	if saturatingAdd(math.MaxUint32, 1) != math.MaxUint32 || saturatingSub(1, 2) != 0 {
		t.Error("limits wrap")
	}
}

// TestBindConn checks that RDMA of the session's own kind is removed.
func TestBindConn(t *testing.T) {
	x := exportV4(t, sign.Off)
	bind := func(rdma int) raw { return op(schema.OpBindConnToSession, stateID, 3, rdma) }
	bound := func(rdma int) raw { return ok(schema.OpBindConnToSession, stateID, 3, rdma) }
	alone(t, x, 1, bind(1), bind(0), bound(1), bound(0))
	alone(t, x, 2, bind(0), bind(0), bound(0), bound(0))
}

// TestDistinct checks that owners differ between exports, and between clients of one export.
func TestDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owners := rapid.SliceOfNDistinct(rapid.SliceOfN(rapid.Byte(), 0, maxOwner), 2, 2, func(b []byte) string { return string(b) }).Draw(t, "owners")
		uids := [][]byte{[]byte("one export"), []byte("anotherone")}
		var seen []string
		for _, uid := range uids {
			for _, owner := range owners {
				var e Edits
				e.Reset(pool4)
				putDistinct(&e, &schema.Span{Len: 4 + len(owner), B: owner}, uid)
				made := opaqueBytes(e.list[0].with)
				if len(made) > maxOwner || slices.Contains(seen, string(made)) {
					t.Fatalf("%x and %x made %x", owner, uid, made)
				}
				seen = append(seen, string(made))
				e.Release()
			}
		}
	})
}
