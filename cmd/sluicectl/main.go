// Command sluicectl lists, copies and measures files on NFS servers over RPC-over-RDMA and TCP.
// Under the name kubectl-sluice it is the plugin "kubectl sluice".
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"sluice.dev/sluice/internal/sluicectl"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	run := sluicectl.Run
	if filepath.Base(os.Args[0]) == sluicectl.PluginName {
		run = sluicectl.RunPlugin
	}
	code := run(ctx, version, os.Args[1:], sluicectl.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
