// Deviceplugin replaces the SR-IOV network device plugin in the test cluster. It offers kubelet a
// resource, and gives containers the environment of that plugin, as of 2025, with device files that
// lead to /dev/null.
//
//	deviceplugin -resource sluice.test/rdma_vf -count 4
package main

import (
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	log.SetFlags(0)
	resource := flag.String("resource", "sluice.test/rdma_vf", "`NAME` of the resource: DOMAIN/NAME")
	count := flag.Int("count", 4, "how many there are on this node")
	dir := flag.String("dir", "/var/lib/kubelet/device-plugins", "kubelet's `FOLDER` of sockets")
	flag.Parse()
	p, err := newPlugin(*resource, *count)
	if err != nil {
		log.Fatal(err)
	}
	socket := *dir + "/sluice.sock"
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) { // left by a killed plugin
		log.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(l) }()
	if err := p.register(*dir + "/kubelet.sock"); err != nil {
		log.Fatal(err)
	}
	log.Printf("%d %s", *count, *resource)
	select {
	case err := <-served:
		log.Fatal(err)
	case <-stop:
		p.server.Stop() // removes the socket
	}
}
