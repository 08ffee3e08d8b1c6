package clienthost

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// link is the wanted RDMA device.
type link struct {
	kind   string // siw, rxe; none if empty
	name   string
	netdev string // that of the default route if empty
}

// kinds are the software RDMA devices: their kernel modules and protocols.
var kinds = map[string]struct{ module, protocol string }{
	"siw": {"siw", "iw"},
	"rxe": {"rdma_rxe", "roce"},
}

// rpcrdma is the module of NFS over RDMA. Each mount uses it.
const rpcrdma = "rpcrdma"

// host is a node.
type host struct {
	want    link
	modules *modules
	network network
	state   string // directory of the record
	log     *slog.Logger
}

// ensure makes the node as wanted. It returns a problem that the administrator has to solve.
func (h *host) ensure() error {
	err := h.modules.load(rpcrdma)
	if h.want.kind == "" {
		return errors.Join(err, h.release())
	}
	return errors.Join(err, h.ensureLink())
}

func (h *host) ensureLink() error {
	kind := kinds[h.want.kind]
	if err := h.modules.load(kind.module); err != nil {
		return err
	}
	netdev, err := h.netdev()
	if err != nil {
		return err
	}
	want := device{h.want.name, netdev, kind.protocol}
	if made, err := h.record(); err != nil {
		return err
	} else if made != (device{}) && made != want {
		if err := h.release(); err != nil {
			return err
		}
	}
	devices, err := h.network.devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		switch {
		case d == want:
			return nil
		case d.name == want.name:
			return fmt.Errorf("RDMA device %s is there already, with protocol %s on interface %q: want %s on %s; give clientHosts.link.name another name, or remove the device",
				d.name, d.protocol, d.netdev, want.protocol, want.netdev)
		case d.netdev == want.netdev && d.protocol == want.protocol:
			return nil // somebody else's: one for an interface is enough
		}
	}
	if err := h.setRecord(want); err != nil {
		return err
	}
	if err := h.network.add(want.name, h.want.kind, want.netdev); err != nil {
		return errors.Join(fmt.Errorf("RDMA device %s of type %s on interface %s: %w", want.name, h.want.kind, want.netdev, err), h.setRecord(device{}))
	}
	h.log.Info("RDMA device added", "device", want.name, "type", h.want.kind, "interface", want.netdev)
	return nil
}

// netdev returns the interface of the link.
func (h *host) netdev() (string, error) {
	all, err := h.network.interfaces()
	if err != nil {
		return "", err
	}
	if h.want.netdev != "" {
		if !slices.Contains(all, h.want.netdev) {
			return "", fmt.Errorf("interface %s: not on this node, which has %s; set clientHosts.link.interface, or leave it empty for that of the default route",
				h.want.netdev, strings.Join(all, ", "))
		}
		return h.want.netdev, nil
	}
	name, err := h.network.defaultInterface()
	if err == nil && name == "" {
		err = fmt.Errorf("there is no default route: set clientHosts.link.interface to one of %s", strings.Join(all, ", "))
	}
	return name, err
}

// release removes the device of the record. A device in use stays, and so does its record.
func (h *host) release() error {
	made, err := h.record()
	if err != nil || made == (device{}) {
		return err
	}
	devices, err := h.network.devices()
	if err != nil {
		return err
	}
	if slices.Contains(devices, made) {
		used := []string{rpcrdma}
		for _, k := range kinds {
			if k.protocol == made.protocol {
				used = append(used, k.module)
			}
		}
		for _, name := range used {
			if n := h.modules.users(name); n > 0 {
				return fmt.Errorf("RDMA device %s stays, since module %s has %d users: unmount NFS over RDMA first, or end the programs with RDMA connections", made.name, name, n)
			}
		}
		if err := h.network.remove(made.name); err != nil {
			return fmt.Errorf("removal of RDMA device %s: %w", made.name, err)
		}
		h.log.Info("RDMA device removed", "device", made.name)
	}
	return h.setRecord(device{})
}

// record returns the device that a pod has made since the node booted.
func (h *host) record() (d device, err error) {
	text, err := os.ReadFile(h.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	} else if err != nil {
		return d, err
	}
	if n, err := fmt.Sscan(string(text), &d.name, &d.netdev, &d.protocol); n != 3 {
		return d, fmt.Errorf("record %s: %q: want a device, an interface and a protocol (%w); remove the file", h.recordFile(), text, err)
	}
	return d, nil
}

func (h *host) setRecord(d device) error {
	if d == (device{}) {
		return os.Remove(h.recordFile())
	}
	return writeFile(h.recordFile(), fmt.Sprintln(d.name, d.netdev, d.protocol))
}

func (h *host) recordFile() string { return filepath.Join(h.state, "device") }

// writeFile replaces a file as a whole.
func writeFile(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
