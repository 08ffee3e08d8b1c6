package freeport

import (
	"net"
	"slices"
	"strconv"
	"testing"
)

// TestChoose: the ports are distinct, unused, and outside of the system's ephemeral range.
func TestChoose(t *testing.T) {
	var all []int
	for range 20 {
		all = append(all, Choose(t, 5)...)
	}
	for i, p := range all {
		if p < lowest || p >= ephemeral || slices.Contains(all[:i], p) {
			t.Fatalf("port %d of %v", p, all)
		}
	}
	if l, err := net.Listen("unix", "@sluice-test-port-"+strconv.Itoa(all[0])); err == nil {
		_ = l.Close()
		t.Fatalf("port %d is not reserved", all[0])
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(all[0]))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}
