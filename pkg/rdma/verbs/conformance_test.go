//go:build verbs

package verbs

import (
	"flag"
	"testing"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

var (
	address = flag.String("address", "", "run the conformance suite on this `host:port`, which an RDMA device must carry")
	kind    = flag.String("kind", "", "what differs with the device: rxe or siw, the kernel's software for RoCE and for iWARP")
)

func TestConformance(t *testing.T) {
	if *address == "" {
		t.Skip("no -address: the suite runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := rdmatest.Factory{Provider: p, Address: *address, Unseen: true, SilentOverrun: true, Shares: true}
	switch *kind {
	case "rxe":
		f.SharedWaits, f.AcceptorFirst, f.Padded, f.TellsHandle, f.LateExpose, f.InvalidatesUnchecked = true, true, true, true, true, true
		f.MaxPrivate.Call, f.MaxPrivate.Answer, f.MaxPrivate.Reject = 56, 196, 148
	case "siw":
		f.ReadsAsAsked, f.SilentEnd, f.ReadsUnchecked, f.LateSegment = true, true, true, true
	default:
		t.Fatalf("-kind %q, want rxe or siw", *kind)
	}
	l, err := p.Listen(t.Context(), *address) // from here on the events of the device are read
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	rdmatest.TestProvider(t, f)
	if *kind == "rxe" {
		t.Run("windows of arenas", func(t *testing.T) { testArenaWindows(t, f) })
	}
}

// testArenaWindows makes rxe bind windows as adapters do: to the regions of the arenas, whose
// bounds it takes for the windows'.
func testArenaWindows(t *testing.T, f rdmatest.Factory) {
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.Listen(t.Context(), *address) // the device is known then
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range p.(*provider).devices {
		d.limits.loose_windows = 0
	}
	f.Provider, f.Only = p, []string{"write then send", "read sizes", "all at once", "send with invalidate", "local invalidate", "close under load"}
	rdmatest.TestProvider(t, f)
}
