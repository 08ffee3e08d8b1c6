// Package names converts between the numbers of pkg/rpcrdma and their names in configuration files,
// on command lines and in output.
package names

import (
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// extensions are the extensions of RPC-over-RDMA version 2, in order.
var extensions = []struct {
	name string
	bit  rpcrdma.Extensions
}{
	{"TransportProperties", rpcrdma.TransportProperties},
	{"MessageContinuation", rpcrdma.MessageContinuation},
	{"SendBasedPlacement", rpcrdma.SendBasedPlacement},
}

// AllExtensions returns the set of all extensions.
func AllExtensions() (all rpcrdma.Extensions) {
	for _, x := range extensions {
		all |= x.bit
	}
	return all
}

// OfExtensions returns the names of the extensions in set, in order. It is never nil.
func OfExtensions(set rpcrdma.Extensions) []string {
	list := []string{}
	for _, x := range extensions {
		if set&x.bit != 0 {
			list = append(list, x.name)
		}
	}
	return list
}

// ParseExtension returns the extension with the given name. Case does not matter.
func ParseExtension(name string) (rpcrdma.Extensions, error) {
	for _, x := range extensions {
		if strings.EqualFold(x.name, name) {
			return x.bit, nil
		}
	}
	return 0, fmt.Errorf("%q is not an extension: want one of %s", name, strings.Join(OfExtensions(AllExtensions()), ", "))
}

// MustExtensions returns the set of extensions with the given names. It panics on an unknown name:
// callers have validated them.
func MustExtensions[S ~string](list []S) (set rpcrdma.Extensions) {
	for _, name := range list {
		x, err := ParseExtension(string(name))
		if err != nil {
			panic(err)
		}
		set |= x
	}
	return set
}

// Backward names a side's support for calls of the reverse direction: None, Inline or General.
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
