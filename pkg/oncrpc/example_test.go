package oncrpc_test

import (
	"context"
	"fmt"
	"net"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
)

const (
	program    = 0x20000001 // from the range for users (RFC 5531 section 13.1)
	procDouble = 1
)

// doubler answers the procedure DOUBLE: it returns twice its argument.
type doubler struct{}

func (doubler) ServeRPC(c *oncrpc.Call) {
	args := c.Args()
	n := args.Uint32()
	switch {
	case c.Program != program:
		c.ReplyAccept(oncrpc.ProgUnavail)
	case c.Procedure != procDouble:
		c.ReplyAccept(oncrpc.ProcUnavail)
	case args.Err() != nil:
		c.ReplyAccept(oncrpc.GarbageArgs)
	default:
		if results, err := c.BeginReply(64); err != nil {
			c.ReplyAccept(oncrpc.SystemErr)
		} else {
			results.Uint32(2 * n)
		}
	}
	c.Respond()
}

// A server and a client of a program of their own, on TCP.
func Example() {
	server, err := oncrpc.NewServer(oncrpc.Config{Pool: bufpool.New(16 << 20), Handler: doubler{}})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()

	ctx := context.Background()
	pool := bufpool.New(16 << 20)
	client, err := oncrpc.Dial(ctx, l.Addr().String(), oncrpc.Config{Pool: pool})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	r, args, err := oncrpc.NewRequest(pool, program, 1, procDouble, oncrpc.Auth{}, 128)
	if err != nil {
		panic(err)
	}
	defer r.Free()
	args.Uint32(21)
	if err := oncrpc.Do(ctx, client, r); err != nil {
		panic(err)
	}
	results, err := r.Results()
	if err != nil {
		panic(err)
	}
	fmt.Println(results.Uint32())
	// Output: 42
}
