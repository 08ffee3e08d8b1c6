package iwarp

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]Config{
		"default":                 {},
		"one TCP segment":         {MaxFPDU: FPDUSegment, Threads: -1},
		"small FPDUs without CRC": {MaxFPDU: 1400, CRC: CRCOff, Threads: 1000, Spin: 200 * time.Microsecond},
		"60 KiB without CRC":      {MaxFPDU: 60 << 10, CRC: CRCMirror},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			rdmatest.TestProvider(t, rdmatest.Factory{Provider: p, Cut: cut})
		})
	}
}

// cut resets the TCP connection of an endpoint, without going through the endpoint.
func cut(ep rdma.Endpoint) {
	ep.(*endpoint).sock.control(func(fd uintptr) { _ = disconnect(int(fd)) })
}

// disconnect is connect to AF_UNSPEC.
func disconnect(fd int) error {
	var unspecified [16]byte
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), pointer(unspecified[:]), uintptr(len(unspecified)))
	if errno != 0 {
		return errno
	}
	return nil
}

func pointer(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
