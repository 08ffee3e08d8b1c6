package gateway

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// from connects from a local address.
func from(t *testing.T, local, address string) net.Conn {
	t.Helper()
	c, err := connect(t, local, address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func connect(t *testing.T, local, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(local), 0)), Timeout: patience}
	c, err := d.Dial("tcp", address)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// turnedAway fails the test unless a connection is refused, or closed before it sends.
func turnedAway(t *testing.T, local, address string) {
	t.Helper()
	switch c, err := connect(t, local, address); {
	case errors.Is(err, syscall.ECONNRESET):
	case err != nil:
		t.Error(err)
	default:
		closed(t, c)
	}
}

// answers makes a NULL call, and reports whether a reply came.
func answers(t *testing.T, c net.Conn) bool {
	t.Helper()
	var call []byte
	for _, w := range []uint32{1<<31 | 40, 1, oncrpc.MsgCall, 2, nfs3.Program, 3, nfs3.ProcNull, 0, 0, 0, 0} {
		call = binary.BigEndian.AppendUint32(call, w)
	}
	if _, err := c.Write(call); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 28))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("neither an answer nor the end of the connection")
	}
	return err == nil
}

// closed waits until the peer closes a connection without a byte sent.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still there: %d bytes, %v", n, err)
	}
}

func (r *env) conns(export string) *conns.Table {
	r.t.Helper()
	for _, e := range r.g.list() {
		if e.name == export {
			return e.conns
		}
	}
	r.t.Fatalf("there is no export %s", export)
	return nil
}

// TestAccessAtAccept checks that a client without access rule is disconnected before it sends a
// byte, and does not count against limits.
func TestAccessAtAccept(t *testing.T) {
	r := newEnv(t)
	x := exportYAML{name: "data", access: `[{from: {networks: ["127.0.0.2/32"]}}]`, limits: "{connections: 1}"}
	r.start(r.yaml(x))
	const peers = 20
	for n, network := range networks {
		address := r.address("data", network)
		for range peers {
			turnedAway(t, "127.0.0.1", address)
		}
		if got := r.conns("data").Refused(conns.Network(n), conns.ByAccess); got != peers {
			t.Errorf("%s: %d connections were counted as refused by access, want %d", network, got, peers)
		}
	}
	c := from(t, "127.0.0.2", r.address("data", config.TCP))
	if !answers(t, c) {
		t.Error("the client that a rule names is not served")
	}
	// New rules hold for new connections.
	x.access = `[{from: {networks: ["127.0.0.1/32"]}}]`
	x.limits = "{connections: 2}"
	r.apply(r.yaml(x))
	turnedAway(t, "127.0.0.2", r.address("data", config.TCP))
	if !answers(t, from(t, "127.0.0.1", r.address("data", config.TCP))) {
		t.Error("the client that a new rule names is not served")
	}
}

// TestConnectionsPerClient checks the limit of one client, and that closed connections do not
// count.
func TestConnectionsPerClient(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "data", limits: "{connections: 3, connectionsPerClient: 1}"}))
	address := r.address("data", config.TCP)
	first := from(t, "127.0.0.1", address)
	if !answers(t, first) {
		t.Fatal("the first connection is not served")
	}
	turnedAway(t, "127.0.0.1", address)
	if got := r.conns("data").Refused(conns.TCP, conns.ByClient); got != 1 {
		t.Errorf("%d connections were counted as refused by client, want 1", got)
	}
	if !answers(t, from(t, "127.0.0.2", address)) {
		t.Error("another client is not served")
	}
	_ = first.Close()
	eventually(t, "the place is free again", func() bool {
		c, err := connect(t, "127.0.0.1", address)
		return err == nil && answers(t, c)
	})
}

// TestIdleConnections checks that idle connections and unfinished handshakes end, on both networks.
func TestIdleConnections(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "data", limits: "{idleTimeout: {beforeFirstCall: 1s, afterCall: 0s}}"}))
	table := r.conns("data")
	for n, network := range networks {
		unused, err := dial(t, network, r.address("data", network))
		if err != nil {
			t.Fatal(err)
		}
		used := r.connect("data", network)
		unused.ends()
		eventually(t, "its end is counted", func() bool { return table.Ended(conns.Network(n), conns.BeforeFirstCall) == 1 })
		used.works()
	}
	r.apply(r.yaml(exportYAML{name: "data", limits: "{idleTimeout: {beforeFirstCall: 0s, afterCall: 1s}}"}))
	for n, network := range networks {
		used := r.connect("data", network)
		r.gate.close()
		outcome := used.slow()
		<-r.gate.held
		time.Sleep(1500 * time.Millisecond) // a call in flight
		r.gate.open()
		if err := <-outcome; err != nil {
			t.Errorf("%s: a connection with a call in flight ended: %v", network, err)
		}
		used.ends()
		eventually(t, "its end is counted", func() bool { return table.Ended(conns.Network(n), conns.AfterCall) >= 1 })
	}
	closed(t, from(t, "127.0.0.1", r.address("data", config.RDMA)))
	eventually(t, "the handshake is counted", func() bool { return table.Refused(conns.RDMA, conns.ByHandshake) == 1 })
}
