package rpcrdma_test

import (
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// greeter answers each call with a greeting, whatever the program and the procedure.
type greeter struct{}

func (greeter) ServeRPC(c *oncrpc.Call) {
	name := c.Args().String(100)
	results, err := c.BeginReply(256)
	if err != nil {
		c.ReplyAccept(oncrpc.SystemErr)
	} else {
		results.String("Hello, " + name + "!")
	}
	c.Respond()
}

// A server and a client on software iWARP. Both offer version 2 besides version 1.
func Example() {
	provider, err := iwarp.New(iwarp.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()

	domain, err := provider.NewDomain()
	if err != nil {
		panic(err)
	}
	defer domain.Close()
	serverPool := bufpool.New(64 << 20)
	if err := domain.Register(serverPool); err != nil {
		panic(err)
	}
	l, err := provider.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server, err := rpcrdma.NewServer(rpcrdma.Config{
		Pool:     serverPool,
		Domain:   domain,
		Handler:  greeter{},
		Versions: []int{1, 2},
	}, l)
	if err != nil {
		panic(err)
	}
	go func() { _ = server.Serve() }()
	defer server.Close()

	pool := bufpool.New(64 << 20)
	client, err := rpcrdma.Dial(ctx, provider, l.Addr().String(), rpcrdma.Config{
		Pool:     pool,
		Versions: []int{1, 2},
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	r, args, err := oncrpc.NewRequest(pool, 0x20000001, 1, 1, oncrpc.Auth{}, 256)
	if err != nil {
		panic(err)
	}
	defer r.Free()
	// The longest reply, header included. A reply beyond the inline threshold gets a Reply chunk.
	r.Plan.MaxReply = 256
	args.String("RDMA")
	if err := oncrpc.Do(ctx, client, r); err != nil {
		panic(err)
	}
	results, err := r.Results()
	if err != nil {
		panic(err)
	}
	fmt.Println(results.String(100))
	fmt.Println("version", client.Negotiated().Version)
	// Output:
	// Hello, RDMA!
	// version 2
}
