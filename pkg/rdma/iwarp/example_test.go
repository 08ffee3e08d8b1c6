package iwarp_test

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
)

// received passes completions of receives on.
type received chan rdma.Completion

func (r received) Completed(batch []rdma.Completion) {
	for _, c := range batch {
		r <- c
	}
}

func (received) Sent([]uint64) {}

// memory returns a domain, and a buffer whose memory is registered with it.
func memory(p rdma.Provider) (rdma.Domain, []byte) {
	domain, err := p.NewDomain()
	if err != nil {
		panic(err)
	}
	pool := bufpool.New(1 << 20)
	if err := domain.Register(pool); err != nil {
		panic(err)
	}
	buf, err := pool.Get(4096)
	if err != nil {
		panic(err)
	}
	return domain, buf.B
}

// One end sends a message, the other receives it. Neither needs a device.
func Example() {
	provider, err := iwarp.New(iwarp.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	l, err := provider.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()

	arrived := make(received, 1)
	domain, buffer := memory(provider)
	go func() {
		request, err := l.Accept()
		if err != nil {
			panic(err)
		}
		endpoint, err := request.Accept(rdma.Options{
			Domain:   domain,
			Receives: []rdma.Receive{{ID: 7, Segments: [][]byte{buffer}}},
		})
		if err != nil {
			panic(err)
		}
		_ = endpoint.Serve(arrived)
	}()

	domain2, message := memory(provider)
	endpoint, err := provider.Dial(ctx, l.Addr().String(), rdma.Options{Domain: domain2})
	if err != nil {
		panic(err)
	}
	defer endpoint.Close()
	go func() { _ = endpoint.Serve(make(received)) }()

	n := copy(message, "Hello, RDMA!")
	err = endpoint.Post([]rdma.WorkRequest{{Op: rdma.Send, Local: [][]byte{message[:n]}}})
	if err != nil {
		panic(err)
	}
	c := <-arrived
	fmt.Printf("receive %d: %s\n", c.ID, buffer[:c.Bytes])
	// Output: receive 7: Hello, RDMA!
}
