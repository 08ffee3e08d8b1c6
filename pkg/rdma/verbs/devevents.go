package verbs

import (
	"cmp"
	"slices"
	"sync"
)

// DeviceEvents counts an asynchronous event of a device.
type DeviceEvents struct {
	Device string
	// Event is the event's name in libibverbs, "port error".
	Event string
	Count uint64
}

// events counts those of all devices since the program began. There are few kinds.
var events struct {
	sync.Mutex
	counts map[[2]string]uint64
}

// Events returns the asynchronous events of all devices that this program has used, sorted.
func Events() []DeviceEvents {
	events.Lock()
	defer events.Unlock()
	var all []DeviceEvents
	for k, n := range events.counts {
		all = append(all, DeviceEvents{k[0], k[1], n})
	}
	slices.SortFunc(all, func(a, b DeviceEvents) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Event, b.Event))
	})
	return all
}
