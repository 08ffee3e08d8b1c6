//go:build kernel

package kernel

import (
	"fmt"
	"testing"
	"time"
)

// TestClientHost has the operator's client-host prepare the guest, with the capabilities of its
// pods, and mounts a directory. testdata/clienthost.sh has the checks.
func TestClientHost(t *testing.T) { onKernels(t, []string{linux612}, testClientHost) }

func testClientHost(t *testing.T, kernel string) {
	volume := &export{name: "volume", crc: true, volume: folder(t, "volumes/volume")}
	volume.backend = fmt.Sprintf("volume: {path: %q}", volume.volume)
	g := newGateway(t, "gateway", volume)
	guest := boot(t, kernel, 10*time.Minute, "clienthost.sh", []string{"-e", "OPERATOR=" + build(t).operator, "-e", "SERVER=10.0.2.2", "-e", "VOLUME=" + volume.spec()},
		func(_ *testing.T, words []string) error { return fmt.Errorf("unknown request %q", words) })
	guest.follow(t)
	g.endsWell(t)
}
