package client_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
)

func serve(dir, listen string) (address string, stop func()) {
	exported, err := server.New(server.Config{
		Root:   dir,
		Name:   "example",
		Key:    make([]byte, 32), // handles survive a restart
		Access: []server.Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Squash: server.SquashNone}},
	})
	if err != nil {
		panic(err)
	}
	rpc, err := oncrpc.NewServer(oncrpc.Config{Pool: bufpool.New(64 << 20), Handler: exported, Bindings: binding.For})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		panic(err)
	}
	go func() { _ = rpc.Serve(l) }()
	return l.Addr().String(), func() { _ = rpc.Close(); _ = exported.Close() }
}

// Example creates a file and reads it back. With the Client of pkg/rpcrdma in place of that of
// pkg/oncrpc it does the same over RDMA.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	address, stop := serve(dir, "127.0.0.1:0")
	defer stop()

	ctx := context.Background()
	pool := bufpool.New(64 << 20)
	conn, err := oncrpc.Dial(ctx, address, oncrpc.Config{Pool: pool})
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	cred, err := client.ProcessCred()
	if err != nil {
		panic(err)
	}
	nfs := client.New(client.Config{Requester: conn, Pool: pool, Cred: cred})

	root, err := nfs.Mount(ctx, "/")
	if err != nil {
		panic(err)
	}
	file, err := nfs.Create(ctx, root, "greeting", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
	if err != nil {
		panic(err)
	}
	if err := nfs.WriteAt(ctx, file.Handle, []byte("Hello, NFS!"), 0, nfs3.FileSync); err != nil {
		panic(err)
	}
	data := make([]byte, 4)
	if _, err := nfs.ReadAt(ctx, file.Handle, data, 7); err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", data)
	// Output: NFS!
}

// ExampleReconnector reads a file of a server that restarts in between.
func ExampleReconnector() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("Hello, NFS!"), 0o644); err != nil {
		panic(err)
	}
	address, stop := serve(dir, "127.0.0.1:0")

	ctx := context.Background()
	pool := bufpool.New(64 << 20)
	link, err := client.NewReconnector(ctx, client.ReconnectConfig{
		Dial: func(ctx context.Context) (client.Conn, error) {
			conn, err := oncrpc.Dial(ctx, address, oncrpc.Config{Pool: pool})
			if err != nil {
				return nil, err // not a nil *oncrpc.Client
			}
			return conn, nil
		},
		Patience:  time.Minute,
		OnLost:    func(error) { fmt.Println("the connection ended") },
		OnResumed: func(time.Duration) { fmt.Println("the server answers again") },
	})
	if err != nil {
		panic(err)
	}
	defer link.Close()
	cred, err := client.ProcessCred()
	if err != nil {
		panic(err)
	}
	nfs := client.New(client.Config{Requester: link, Pool: pool, Cred: cred})
	root, err := nfs.Mount(ctx, "/")
	if err != nil {
		panic(err)
	}
	file, err := nfs.Lookup(ctx, root, "file")
	if err != nil {
		panic(err)
	}
	stop()
	_, stop = serve(dir, address)
	defer stop()
	data := make([]byte, 5)
	if _, err := nfs.ReadAt(ctx, file.Handle, data, 0); err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", data)
	// Output:
	// the connection ended
	// the server answers again
	// Hello
}
