// Package words has the words, in configuration files, on command lines and in what is printed, for what pkg/rpcrdma has numbers for.
package words

import (
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// extensions are those of RPC-over-RDMA version 2, in order.
var extensions = []struct {
	name string
	bit  rpcrdma.Extensions
}{
	{"TransportProperties", rpcrdma.TransportProperties},
	{"MessageContinuation", rpcrdma.MessageContinuation},
	{"SendBasedPlacement", rpcrdma.SendBasedPlacement},
}

// Extensions are all that there are.
func Extensions() (all rpcrdma.Extensions) {
	for _, x := range extensions {
		all |= x.bit
	}
	return all
}

// Names returns the names of a set of extensions, in order. It is never nil.
func Names(set rpcrdma.Extensions) []string {
	names := []string{}
	for _, x := range extensions {
		if set&x.bit != 0 {
			names = append(names, x.name)
		}
	}
	return names
}

// Extension returns the extension that has a name, whose case does not matter.
func Extension(name string) (rpcrdma.Extensions, error) {
	for _, x := range extensions {
		if strings.EqualFold(x.name, name) {
			return x.bit, nil
		}
	}
	return 0, fmt.Errorf("%q is no extension, must be of %s", name, strings.Join(Names(Extensions()), ", "))
}

// Backward says what a side does with calls of the reverse direction: None, Inline or General.
func Backward(support uint32) string {
	switch support {
	case wire.BackwardNone:
		return "None"
	case wire.BackwardInline:
		return "Inline"
	case wire.BackwardGeneral:
		return "General"
	}
	return fmt.Sprint(support)
}
