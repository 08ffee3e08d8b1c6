package verbs

import (
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"runtime"
	"strconv"
	"time"
)

const (
	maxSegments = 4 // of a work request or receive
	// the room beside maxSegments in a work request of 256 bytes (see [Queues.Memory])
	defaultInline = 60
)

// complete checks the settings, and fills in defaults.
func (c *Config) complete() error {
	switch {
	case c.MaxPending < 0:
		return fmt.Errorf("verbs: MaxPending is %d, want 0 or more", c.MaxPending)
	case c.MaxRegions < 0:
		return fmt.Errorf("verbs: MaxRegions is %d, want 0 or more", c.MaxRegions)
	case c.ResolveTimeout < 0:
		return fmt.Errorf("verbs: ResolveTimeout is %v, want 0s or more", c.ResolveTimeout)
	case c.Linger < 0:
		return fmt.Errorf("verbs: Linger is %v, want 0s or more", c.Linger)
	case c.AckTimeout < 0 || c.AckTimeout > maxAckTimeout:
		return fmt.Errorf("verbs: AckTimeout is %v, want 0s to %v", c.AckTimeout, maxAckTimeout)
	case c.RetryCount < 0 || c.RetryCount > maxRetries:
		return fmt.Errorf("verbs: RetryCount is %d, want 0 to %d", c.RetryCount, maxRetries)
	case c.TOS < 0 || c.TOS > 255:
		return fmt.Errorf("verbs: TOS is %d, want 0 to 255", c.TOS)
	case c.Moderation.Completions < 0 || c.Moderation.Completions > 0xffff:
		return fmt.Errorf("verbs: Moderation.Completions is %d, want 0 to 65535", c.Moderation.Completions)
	case c.Moderation.Period < 0 || c.Moderation.Period > maxModeration:
		return fmt.Errorf("verbs: Moderation.Period is %v, want 0s to %v", c.Moderation.Period, maxModeration)
	}
	for _, v := range c.CompletionVectors {
		if v < 0 {
			return fmt.Errorf("verbs: CompletionVectors has %d, want 0 or more", v)
		}
	}
	if c.Inline == 0 {
		c.Inline = defaultInline
	}
	c.Inline = max(c.Inline, 0)
	if c.Spin == 0 && runtime.GOMAXPROCS(0) > 2 {
		c.Spin = 256
	}
	c.Spin = max(c.Spin, 0)
	if c.MaxPending == 0 {
		c.MaxPending = 1024
	}
	if c.MaxRegions == 0 {
		c.MaxRegions = 1 << 16
	}
	if c.ResolveTimeout == 0 {
		c.ResolveTimeout = 5 * time.Second
	}
	if c.Linger == 0 {
		c.Linger = 5 * time.Second
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = time.Minute
	}
	if c.RetryCount == 0 {
		c.RetryCount = defaultRetries
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

const (
	maxRetries     = 7 // unlimited for RNR retries; for others too with rxe
	defaultRetries = 6
	maxModeration  = 0xffff * time.Microsecond
	// An ACK timeout is ackUnit * 2^exponent, with an exponent of 1 to 31.
	ackUnit       = 4096 * time.Nanosecond
	maxAckTimeout = ackUnit << 31
)

// ackExponent returns the encoding of an ACK timeout (InfiniBand Architecture Specification, volume
// 1, section 9.7.6.1.3): that of the shortest time that is at least d. 0 gives 0, the connection
// manager's own.
func ackExponent(d time.Duration) uint8 {
	if d <= 0 {
		return 0
	}
	units := uint64((d + ackUnit - 1) / ackUnit)
	return uint8(min(max(bits.Len64(units-1), 1), 31))
}

// vector returns the completion vector of the nth completion queue of a device: each of chosen in
// turn, or each of the available ones if none is chosen.
func vector(chosen []int, available int, n uint64) int {
	if available < 1 {
		return 0
	}
	if len(chosen) > 0 {
		return chosen[n%uint64(len(chosen))] % available
	}
	return int(n % uint64(available))
}

// zoneIndex returns the index of the network interface that is the zone of an IPv6 address, by name
// or number: 0 for none.
func zoneIndex(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if link, err := net.InterfaceByName(zone); err == nil {
		return uint32(link.Index), nil
	}
	n, err := strconv.ParseUint(zone, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("the zone %q is neither the name nor the number of a network interface", zone)
	}
	return uint32(n), nil
}

// Queues are the queues of a connection.
type Queues struct {
	// Sends and Receives are their lengths. With Shared, the receives are in a queue of their own,
	// and Receives bounds the unreported ones.
	Sends, Receives int
	Shared          bool
	// Inline is [Config.Inline]: 0 means its default.
	Inline int
}

// Memory bounds the locked memory of the queues in bytes: the send queue, the receive queue and the
// completion queue. It is an upper estimate by the layout of mlx5, whose requests are the largest
// known: a work request has 192 bytes besides its segments or inline data and is a multiple of 64
// bytes, a segment has 16, a completion 64, and each queue has a power of two of bytes. The
// driver's pages for doorbells are shared.
func (q Queues) Memory() uint64 {
	const overhead, segment, block, completion, page = 192, 16, 64, 64, 4096
	inline := q.Inline
	if inline == 0 {
		inline = defaultInline
	}
	request := overhead + max(maxSegments*segment, roundUp(4+max(inline, 0), segment))
	sends := powerOfTwo(q.Sends * roundUp(request, block))
	receives := 0
	if !q.Shared {
		receives = powerOfTwo(q.Receives) * powerOfTwo(maxSegments*segment)
	}
	completions := powerOfTwo(q.Sends+q.Receives+1) * completion
	return uint64(roundUp(sends+receives, page) + roundUp(completions, page))
}

// SharedMemory bounds the locked memory in bytes of an SRQ of so many receives, by the same layout.
func SharedMemory(receives int) uint64 {
	const next, segment, page = 16, 16, 4096
	return uint64(roundUp(powerOfTwo(receives+1)*powerOfTwo(next+maxSegments*segment), page))
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

func powerOfTwo(n int) int {
	if n <= 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}
