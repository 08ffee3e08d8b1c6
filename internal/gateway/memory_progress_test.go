package gateway

import (
	"encoding/binary"
	"net"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// announce starts a call of 1 MiB, and sends n bytes of it.
func announce(t *testing.T, c net.Conn, n int) {
	t.Helper()
	var b []byte
	for _, w := range []uint32{1<<31 | 1<<20, 1, oncrpc.MsgCall, 2, nfs3.Program, 3, nfs3.ProcWrite, 0, 0, 0, 0} {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	if _, err := c.Write(append(b, make([]byte, n)...)); err != nil {
		t.Fatal(err)
	}
}

// TestHeldMemory checks that connections with all memory of an export end when others wait and they
// make no progress, and that announced bytes take no memory before they arrive.
func TestHeldMemory(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "data", limits: "{memory: 8Mi}"}))
	at := r.address("data", config.TCP)
	budget := func() int64 { return r.g.list()[0].served.budget.Used() }
	for range 20 {
		announce(t, from(t, "127.0.0.1", at), 2048)
	}
	c := r.connect("data", config.TCP)
	c.put("small", 2<<20)
	ended := func() uint64 { return r.conns("data").Ended(conns.TCP, conns.NoProgress) }
	if n := ended(); n != 0 {
		t.Errorf("%d connections ended that hold nothing", n)
	}
	var holding []net.Conn
	for range 12 {
		conn := from(t, "127.0.0.1", at)
		announce(t, conn, 100<<10)
		holding = append(holding, conn)
	}
	eventually(t, "all memory is held", func() bool { return budget() > 7<<20 })
	c.put("large", 2<<20) // waits for memory
	eventually(t, "the ends are counted", func() bool { return ended() > 0 })
	for _, conn := range holding {
		_ = conn.Close()
	}
	eventually(t, "all is given back", func() bool { return budget() == 0 })
}
