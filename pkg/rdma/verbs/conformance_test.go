//go:build verbs

package verbs

import (
	"flag"
	"testing"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

var (
	address = flag.String("address", "", "run the conformance suite on this `host:port`, which an RDMA device must carry")
	iwarp   = flag.Bool("iwarp", false, "the device is one of iWARP")
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
	if *iwarp {
		f.SilentEnd = true
	} else {
		f.AcceptorFirst, f.Padded, f.TellsHandle = true, true, true
		f.MaxPrivate.Call, f.MaxPrivate.Answer, f.MaxPrivate.Reject = 56, 196, 148
	}
	rdmatest.TestProvider(t, f)
}
