package verbs

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestQueueMemory compares the model with the arithmetic of mlx5, done by hand.
func TestQueueMemory(t *testing.T) {
	for _, c := range []struct {
		name string
		q    Queues
		want uint64
	}{
		// 256 requests of 192+64 bytes; 256 receives of 64; 512 completions of 64.
		{"a server of 128 credits", Queues{Sends: 256, Receives: 146}, 64<<10 + 16<<10 + 32<<10},
		{"with shared receives", Queues{Sends: 256, Receives: 146, Shared: true}, 64<<10 + 32<<10},
		// 1024 requests of 192+272 bytes, rounded up to 512; 2048 completions.
		{"256 bytes inline", Queues{Sends: 1024, Receives: 1024, Shared: true, Inline: 256}, 512<<10 + 256<<10},
		{"just one more completion", Queues{Sends: 256, Receives: 256, Shared: true}, 64<<10 + 64<<10},
		{"nothing inline", Queues{Sends: 256, Receives: 16, Shared: true, Inline: -1}, 64<<10 + 32<<10},
		{"the smallest", Queues{Sends: 1, Receives: 1}, 4096 + 4096},
	} {
		if got := c.q.Memory(); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
	// 16385 receives of 16+64 bytes: 32768 of 128.
	if got := SharedMemory(16384); got != 4<<20 {
		t.Errorf("16384 shared receives: %d bytes, want %d", got, 4<<20)
	}
}

func TestVector(t *testing.T) {
	for _, c := range []struct {
		chosen    []int
		available int
		want      []int
	}{
		{nil, 4, []int{0, 1, 2, 3, 0}},
		{nil, 0, []int{0, 0}},
		{[]int{2, 5}, 8, []int{2, 5, 2}},
		{[]int{9}, 4, []int{1, 1}},
	} {
		for n, want := range c.want {
			if got := vector(c.chosen, c.available, uint64(n)); got != want {
				t.Errorf("%v of %d, queue %d: vector %d, want %d", c.chosen, c.available, n, got, want)
			}
		}
	}
}

func TestAckExponent(t *testing.T) {
	for d, want := range map[time.Duration]uint8{0: 0, 1: 1, 8192: 1, 8193: 2, 16384: 2, 67 * time.Millisecond: 14, 68 * time.Millisecond: 15, maxAckTimeout: 31} {
		if got := ackExponent(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}

func TestConfigBad(t *testing.T) {
	for words, c := range map[string]Config{
		"MaxPending is -1":               {MaxPending: -1},
		"Linger is -1ns":                 {Linger: -1},
		"AckTimeout is -1ns":             {AckTimeout: -1},
		"RetryCount is 8":                {RetryCount: 8},
		"TOS is 256":                     {TOS: 256},
		"Moderation.Completions is -1":   {Moderation: Moderation{Completions: -1}},
		"Moderation.Period is 1h0m0s":    {Moderation: Moderation{Period: time.Hour}},
		"CompletionVectors has -3, want": {CompletionVectors: []int{1, -3}},
	} {
		if err := c.complete(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: %v, want an error with %q", c, err, words)
		}
	}
	var c Config
	if err := c.complete(); err != nil || c.KeepAlive != time.Minute || c.RetryCount != 6 {
		t.Errorf("the zero value: %v, %+v", err, c)
	}
}

// TestZone: a zone is a name or a number.
func TestZone(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, zone := range []string{"lo", strconv.Itoa(lo.Index)} {
		if got, err := zoneIndex(zone); err != nil || got != uint32(lo.Index) {
			t.Errorf("zone %s: %d, %v; want %d", zone, got, err, lo.Index)
		}
	}
	if n, err := zoneIndex("nowhere0"); err == nil {
		t.Errorf("zone nowhere0 is %d", n)
	}
	if n, err := zoneIndex(""); err != nil || n != 0 {
		t.Errorf("no zone: %d, %v", n, err)
	}
}
