//go:build kernel

package exhaustion

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/test/gatewaytest"
)

// one is the attackers' address, beside the ordinary client's 127.0.0.1.
func one(int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 2}) }

// many gives each connection an address of its own.
func many(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 0, byte(1 + i/250), byte(1 + i%250)})
}

const (
	guests    = "127.0.0.0/8"  // attackers among them
	strangers = "127.0.0.1/32" // but for attackers
)

func TestExhaustion(t *testing.T) {
	both := []string{"rdma", "tcp"}
	for _, x := range []struct {
		name string
		setUp
		attack
	}{
		{"unanswered RDMA Reads", setUp{rules: guests}, attack{150, both[:1], one, unansweredReads}},
		{"unanswered RDMA Reads of a stranger", setUp{rules: strangers}, attack{150, both[:1], one, unansweredReads}},
		{"unanswered RDMA Reads from many addresses", setUp{rules: guests}, attack{150, both[:1], many, unansweredReads}},
		{"half records", setUp{rules: guests}, attack{300, both[1:], one, halfRecord}},
		{"half records of a stranger", setUp{rules: strangers}, attack{300, both[1:], one, halfRecord}},
		{"half records from many addresses", setUp{rules: guests}, attack{300, both[1:], many, halfRecord}},
		{"unread replies", setUp{rules: guests}, attack{200, both, one, unreadReplies}},
		{"unread replies from many addresses", setUp{rules: guests}, attack{200, both, many, unreadReplies}},
		{"idle connections", setUp{rules: guests}, attack{1100, both, one, idle}},
		{"idle connections of a stranger", setUp{rules: strangers}, attack{1100, both, one, idle}},
		{"proxy: unanswered RDMA Reads", setUp{guests, true}, attack{150, both[:1], one, unansweredReads}},
		{"proxy: half records", setUp{guests, true}, attack{300, both[1:], one, halfRecord}},
	} {
		t.Run(strings.ReplaceAll(x.name, " ", "-"), func(t *testing.T) {
			g := start(t, x.setUp)
			s := x.begin(t, g)
			defer s.end()
			time.Sleep(time.Second) // the calls reach the gateway and take memory
			t.Log("connections of the attack:", s)
			for _, network := range x.networks { // where the ordinary client meets the attackers
				if !g.visit(t, network, 64*mib) {
					break
				}
			}
			t.Log("connections of the attack:", s)
		})
	}
}

// TestAdminPage has 1,500 connections request /metrics repeatedly and read nothing.
func TestAdminPage(t *testing.T) {
	g := start(t, setUp{rules: guests})
	ask := []byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n", 50))
	for range 1500 {
		c, err := net.DialTimeout("tcp", g.admin, 5*time.Second)
		if err != nil {
			continue
		}
		defer c.Close()
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(ask)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, page := range []string{"/readyz", "/metrics", "/status"} {
		began := time.Now()
		err := gatewaytest.Get(g.admin, page)
		for err != nil && ctx.Err() == nil {
			err = gatewaytest.Get(g.admin, page)
		}
		if err != nil {
			t.Errorf("%s was not answered within %s: %v", page, patience, err)
		}
		t.Logf("%s was answered after %.1f s", page, time.Since(began).Seconds())
	}
}
