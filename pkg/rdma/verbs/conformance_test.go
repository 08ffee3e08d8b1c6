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
	f := rdmatest.Factory{Provider: p, Address: *address, Unseen: true, SilentOverrun: true}
	switch *kind {
	case "rxe":
		f.AcceptorFirst, f.Padded, f.TellsHandle = true, true, true
		f.MaxPrivate.Call, f.MaxPrivate.Answer, f.MaxPrivate.Reject = 56, 196, 148
	case "siw":
		f.ReadsAsAsked, f.SilentEnd, f.ReadsUnchecked, f.LateSegment = true, true, true, true
	default:
		t.Fatalf("-kind %q, want rxe or siw", *kind)
	}
	rdmatest.TestProvider(t, f)
}
