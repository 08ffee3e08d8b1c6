package rdmatest

import (
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// Factory describes a provider to the suite.
type Factory struct {
	Provider rdma.Provider
	// Address is the address to listen on, reachable by the provider itself. "" means
	// "127.0.0.1:0".
	Address string
	// AcceptorFirst: the accepting end may send before the dialing end has.
	AcceptorFirst bool
	// SharedHandles: a handle is valid on all connections of its domain, not only on its own.
	SharedHandles bool
	// TellsHandle: a refused Read or Write always ends its connection with a *rdma.AccessError.
	TellsHandle bool
	// MaxPrivate bounds the private data of a request, of its answer, and of a rejection; 0 means
	// 196. Over InfiniBand the field is smaller and has a fixed length: with Padded, zeros may
	// follow the data.
	MaxPrivate struct{ Call, Answer, Reject int }
	Padded     bool
	// Unseen: the provider does not count the peer's RDMA Reads and Writes, since the device
	// executes them alone.
	Unseen bool
	// SilentOverrun: an end whose peer had no receive for its message may see an orderly end of the
	// connection. SilentEnd: so may either end after any violation.
	SilentOverrun, SilentEnd bool
	// SharedWaits: a message without a shared receive is repeated until there is one.
	SharedWaits bool
	// ReadsAsAsked: an accepting end takes as many Reads at once as the dialing one requests, even
	// beyond its IRD.
	ReadsAsAsked bool
	// ReadsUnchecked: the device answers a Read from all registered memory, even if it was exposed
	// for writing only.
	ReadsUnchecked bool
	// LateExpose: memory given to Expose is accessible when work posted after it is complete.
	LateExpose bool
	// InvalidatesUnchecked: a Send with Invalidate also ends access by handles of other
	// connections. With an invalid handle the sender may see an orderly end of the connection.
	InvalidatesUnchecked bool
	// LateSegment: a segment that the device is placing when access ends is placed to its end.
	LateSegment bool
	// Shares: the provider has SRQs.
	Shares bool
	// Only has the names of the cases to run, nil for all.
	Only []string
	// Cut breaks the connection beneath an endpoint, without notice to either side. Nil skips the
	// cases that need it.
	Cut func(ep rdma.Endpoint)

	bubble bool // run each case in virtual time
}

// TestProvider is the conformance suite of package rdma. Each provider's own test calls it, once
// for each setting that makes a difference on the wire (with CRC and without, small segments and
// large ones):
//
//	func TestConformance(t *testing.T) {
//		rdmatest.TestProvider(t, rdmatest.Factory{Provider: iwarp.New(iwarp.Options{})})
//	}
//
// Cases run one after the other, and most of them twice: once with the dialing end in the leading
// role and once with the accepting end. Every case also checks that each request has its
// completions, exactly once and in order; that no handler runs after Serve has returned; that no
// memory outside of the named one changes; and that no goroutine is left behind.
//
// The Factory lists the permitted differences of providers. For the rest, the suite tests package
// rdma's documentation literally.
func TestProvider(t *testing.T, f Factory) {
	if f.Address == "" {
		f.Address = "127.0.0.1:0"
	}
	s := &suite{Factory: f, pool: bufpool.New(0)}
	// from here on all goroutines that the provider starts once are running
	t.Run("connect", s.once(testFirst))
	all := cases
	if f.Shares {
		all = slices.Concat(cases, sharedCases)
	}
	for _, c := range all {
		if f.Only != nil && !slices.Contains(f.Only, c.name) {
			continue
		}
		if c.once {
			t.Run(c.name, s.once(c.test))
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Run("dialer", s.once(c.test))
			t.Run("acceptor", s.swapped(c.test))
		})
	}
}

type testCase struct {
	name string
	once bool
	test func(*exam)
}

// cases of the suite. A test's ends a and b are dialer and acceptor, and then, unless once is set,
// acceptor and dialer.
var cases = []testCase{
	{"private data", true, testPrivateData},
	{"reject", true, testReject},
	{"nobody listens", true, testRefused},
	{"close listener", true, testListenerClose},
	{"give up dialing", true, testDialCancelled},
	{"read depths", true, testReadDepths},
	{"bad options", true, testBadOptions},
	{"acceptor sends first", true, testAcceptorFirst},
	{"many connections", true, testManyConnections},

	{"send sizes", false, testSendSizes},
	{"send gather and scatter", false, testSendSegments},
	{"send order", false, testSendOrder},
	{"send unsignaled", false, testSendUnsignaled},
	{"send held", false, testSendHeld},
	{"bad posts", false, testBadPosts},
	{"post in handlers", false, testPostInHandlers},
	{"post before serve", false, testPostBeforeServe},

	{"write sizes", false, testWriteSizes},
	{"write then send", false, testWriteThenSend},
	{"write reused", false, testWriteReused},
	{"read sizes", false, testReadSizes},
	{"read beyond depth", false, testReadBeyondDepth},
	{"zero length", false, testZeroLength},
	{"8 MiB", false, testLarge},
	{"memory given back", true, testTrim},
	{"all at once", false, testMixed},

	{"bounds and access", false, testViolations},
	{"send with invalidate", false, testSendWithInvalidate},
	{"local invalidate", false, testLocalInvalidate},
	{"redirect", false, testRedirect},
	{"handles unpredictable", false, testHandles},
	{"no receive", false, testOverrun},

	{"close", false, testClose},
	{"close sends earlier posts", false, testCloseFlushes},
	{"close in handlers", false, testCloseInHandlers},
	{"close without serve", false, testCloseUnserved},
	{"close as it is served", false, testCloseAsServed},
	{"close under load", false, testCloseUnderLoad},
	{"cut", false, testCut},
	{"stats", false, testStats},
	{"allocations", true, testAllocations},
}

// sharedCases are those with SRQs.
var sharedCases = []testCase{
	{"shared receives", true, testShared},
	{"shared receives are left", true, testSharedLeft},
	{"no shared receive", true, testSharedOverrun},
	{"shared receives' rules", true, testSharedRules},
}

type suite struct {
	Factory
	pool *bufpool.Pool
}

func (s *suite) once(test func(*exam)) func(*testing.T) {
	return func(t *testing.T) { s.run(t, false, test) }
}

func (s *suite) swapped(test func(*exam)) func(*testing.T) {
	return func(t *testing.T) { s.run(t, true, test) }
}

func (s *suite) run(t *testing.T, swap bool, test func(*exam)) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	run := func(t *testing.T) {
		x := &exam{T: t, suite: s, swap: swap}
		defer x.finish()
		test(x)
	}
	if s.bubble {
		synctest.Test(t, run)
	} else {
		run(t)
	}
}
