package doctor

import (
	"io/fs"
	"os"
	"path"
	"strconv"
)

// PortCounter is a hardware counter of an adapter's port, such as out_of_sequence or
// local_ack_timeout_err.
type PortCounter struct {
	Device, Port, Name string
	Value              uint64
}

// Adapters have 20 to 60 counters per port.
const maxCounters = 256

// ReadCounters returns the hardware counters of all RDMA devices.
func ReadCounters() []PortCounter { return readCounters(os.DirFS("/sys")) }

func readCounters(sys fs.FS) (all []PortCounter) {
	ports, _ := fs.Glob(sys, path.Join(class, "*/ports/*/hw_counters"))
	for _, at := range ports {
		port := path.Dir(at)
		entries, _ := fs.ReadDir(sys, at)
		n := 0
		for _, e := range entries {
			if e.Name() == "lifespan" { // the age limit of the cached figures
				continue
			}
			v, err := strconv.ParseUint(read(sys, path.Join(at, e.Name())), 10, 64)
			if err != nil {
				continue
			}
			if n++; n > maxCounters {
				break
			}
			all = append(all, PortCounter{path.Base(path.Dir(path.Dir(port))), path.Base(port), e.Name(), v})
		}
	}
	return all
}
