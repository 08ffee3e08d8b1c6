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
	// Provider is under test.
	Provider rdma.Provider
	// Address to listen on, where the provider itself can reach it. "" means "127.0.0.1:0".
	Address string
	// AcceptorFirst: the accepting end may send before the dialing end has.
	AcceptorFirst bool
	// SharedHandles: a handle is good on all connections of its domain, not only on the one that it was made for.
	SharedHandles bool
	// TellsHandle: a refused Read or Write always ends its connection with a *rdma.AccessError.
	TellsHandle bool
	// MaxPrivate are the most bytes of private data that go with a call, with its answer, and with a rejection; 0 means 196. Over
	// InfiniBand there is less room, and it is always sent whole: Padded says that zeros may follow what was given.
	MaxPrivate struct{ Call, Answer, Reject int }
	Padded     bool
	// Unseen: the provider does not count what the peer reads and writes here, since the device does that alone.
	Unseen bool
	// SilentOverrun: an end whose peer found no receive posted there may take the end of the connection for an orderly one.
	// SilentEnd: so may any end of a connection that ended because either of them violated something.
	SilentOverrun, SilentEnd bool
	// SharedWaits: a message that finds no shared receive is repeated until there is one.
	SharedWaits bool
	// ReadsAsAsked: an accepting end takes as many Reads at once as the dialing one asks for, though its IRD be less.
	ReadsAsAsked bool
	// ReadsUnchecked: the device answers a Read from all that is registered, also if it was exposed for writing only.
	ReadsUnchecked bool
	// LateExpose: what Expose makes accessible is so when what is posted after it is complete.
	LateExpose bool
	// InvalidatesUnchecked: a Send with Invalidate also ends access by handles of other connections; who names a handle that is none may take
	// the end of the connection for an orderly one.
	InvalidatesUnchecked bool
	// LateSegment: what the device is placing when access ends is placed to its end.
	LateSegment bool
	// Shares: connections can share receives.
	Shares bool
	// Only are the names of the cases to run, nil for all.
	Only []string
	// Cut breaks the connection beneath an endpoint, with no farewell to either side. Nil skips the cases that need it.
	Cut func(ep rdma.Endpoint)

	bubble bool // run each case in virtual time
}

// TestProvider is the conformance suite of package rdma. Each provider's own test calls it, one call for each setting that
// makes a difference on the wire (with CRC and without, small segments and large ones):
//
//	func TestConformance(t *testing.T) {
//		rdmatest.TestProvider(t, rdmatest.Factory{Provider: iwarp.New(iwarp.Options{})})
//	}
//
// Cases run one after the other, and most of them twice: once with the dialing end in the leading role and once with the
// accepting end. In every case: completions are accounted for, exactly one for each request that has one and in order; no
// handler runs after Serve has returned; nothing outside the memory that was named is touched; no goroutine is left behind.
//
// What providers may do differently is said in the Factory; for the rest, the suite takes package rdma at its word.
func TestProvider(t *testing.T, f Factory) {
	if f.Address == "" {
		f.Address = "127.0.0.1:0"
	}
	s := &suite{Factory: f, pool: bufpool.New(0)}
	t.Run("connect", s.once(testFirst)) // what a provider starts once and for all is running from here on
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

// cases of the suite. A test's ends a and b are dialer and acceptor, and then, unless once is set, acceptor and dialer.
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
	{"read sizes", false, testReadSizes},
	{"read beyond depth", false, testReadBeyondDepth},
	{"zero length", false, testZeroLength},
	{"8 MiB", false, testLarge},
	{"memory given back", true, testTrim},
	{"all at once", false, testMixed},

	{"bounds and access", false, testViolations},
	{"send with invalidate", false, testSendWithInvalidate},
	{"local invalidate", false, testLocalInvalidate},
	{"handles unpredictable", false, testHandles},
	{"no receive", false, testOverrun},

	{"close", false, testClose},
	{"close sends what was posted", false, testCloseFlushes},
	{"close in handlers", false, testCloseInHandlers},
	{"close without serve", false, testCloseUnserved},
	{"close as it is served", false, testCloseAsServed},
	{"close under load", false, testCloseUnderLoad},
	{"cut", false, testCut},
	{"stats", false, testStats},
	{"allocations", true, testAllocations},
}

// sharedCases are those of receives that connections share.
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
