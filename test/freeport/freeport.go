// Package freeport chooses ports for servers that a test stops and starts again.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Linux takes the ports of outgoing connections, and those of listeners on port 0, from 32768 on
// (ip_local_port_range). A port below stays free while its server is down.
const lowest, ephemeral = 10000, 32768

// held has the sockets that reserve ports until the process ends.
var (
	mu   sync.Mutex
	held []net.Listener
)

// Choose returns n TCP ports that are unused on all addresses of the host. Each port is returned
// once: by this process, and by all processes of the network namespace while this one runs.
func Choose(t testing.TB, n int) (ports []int) {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	for range 1000 {
		if len(ports) == n {
			return ports
		}
		p := lowest + rand.IntN(ephemeral-lowest)
		reservation, err := net.Listen("unix", "@sluice-test-port-"+strconv.Itoa(p))
		if err != nil {
			continue
		}
		held = append(held, reservation)
		l, err := net.Listen("tcp", ":"+strconv.Itoa(p))
		if err != nil {
			continue
		}
		_ = l.Close()
		ports = append(ports, p)
	}
	t.Fatalf("no %d free ports from %d to %d", n, lowest, ephemeral-1)
	return nil
}
