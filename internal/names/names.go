// Package names converts between the numbers of pkg/rpcrdma and their names in configuration files,
// on command lines and in output.
package names

import (
	"fmt"
	"strings"

	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// bits are the names of a set's members, in order.
type bits[T ~uint8] []struct {
	name string
	bit  T
}

func (b bits[T]) all() (all T) {
	for _, x := range b {
		all |= x.bit
	}
	return all
}

func (b bits[T]) of(set T) []string {
	list := []string{}
	for _, x := range b {
		if set&x.bit != 0 {
			list = append(list, x.name)
		}
	}
	return list
}

func (b bits[T]) parse(name, kind string) (T, error) {
	for _, x := range b {
		if strings.EqualFold(x.name, name) {
			return x.bit, nil
		}
	}
	return 0, fmt.Errorf("%q is not %s: want one of %s", name, kind, strings.Join(b.of(b.all()), ", "))
}

var extensions = bits[rpcrdma.Extensions]{
	{"TransportProperties", rpcrdma.TransportProperties},
	{"MessageContinuation", rpcrdma.MessageContinuation},
	{"SendBasedPlacement", rpcrdma.SendBasedPlacement},
}

// AllExtensions returns the set of all extensions of version 2.
func AllExtensions() rpcrdma.Extensions { return extensions.all() }

// OfExtensions returns the names of the extensions in set, in order. It is never nil.
func OfExtensions(set rpcrdma.Extensions) []string { return extensions.of(set) }

// ParseExtension returns the extension with the given name. Case does not matter.
func ParseExtension(name string) (rpcrdma.Extensions, error) {
	return extensions.parse(name, "an extension")
}

// MustExtensions returns the set of extensions with the given names. It panics on an unknown name:
// callers have validated them.
func MustExtensions[S ~string](list []S) rpcrdma.Extensions { return must(list, ParseExtension) }

var rfc5666 = bits[rpcrdma.RFC5666]{
	{"Padding", rpcrdma.Padding},
	{"ReadRead", rpcrdma.ReadRead},
	{"Configuration", rpcrdma.Configuration},
}

// AllRFC5666 returns the set of all forms of version 1 that only RFC 5666 has.
func AllRFC5666() rpcrdma.RFC5666 { return rfc5666.all() }

// OfRFC5666 returns the names of the forms of RFC 5666 in set, in order. It is never nil.
func OfRFC5666(set rpcrdma.RFC5666) []string { return rfc5666.of(set) }

// ParseRFC5666 returns the form of RFC 5666 with the given name. Case does not matter.
func ParseRFC5666(name string) (rpcrdma.RFC5666, error) {
	return rfc5666.parse(name, "a form of RFC 5666")
}

// MustRFC5666 returns the set of forms with the given names. It panics on an unknown name: callers
// have validated them.
func MustRFC5666[S ~string](list []S) rpcrdma.RFC5666 { return must(list, ParseRFC5666) }

// dialects are those of version 2.
var dialects = []struct {
	name    string
	dialect wire.Dialect
}{{"RoundTrip", wire.V2RoundTrip}, {"WorkingGroup", wire.V2WorkingGroup}}

// Dialects returns the names of the dialects of version 2.
func Dialects() (list []string) {
	for _, d := range dialects {
		list = append(list, d.name)
	}
	return list
}

// Dialect names a dialect of version 2.
func Dialect(d wire.Dialect) string {
	for _, x := range dialects {
		if x.dialect == d {
			return x.name
		}
	}
	return fmt.Sprint(d)
}

// ParseDialect returns the dialect of version 2 with the given name; none for "". Case does not
// matter.
func ParseDialect(name string) (wire.Dialect, error) {
	if name == "" {
		return nil, nil
	}
	for _, x := range dialects {
		if strings.EqualFold(x.name, name) {
			return x.dialect, nil
		}
	}
	return nil, fmt.Errorf("%q is not a dialect of version 2: want one of %s", name, strings.Join(Dialects(), ", "))
}

// MustDialect returns the dialect with the given name. It panics on an unknown name: callers have
// validated it.
func MustDialect[S ~string](name S) wire.Dialect {
	d, err := ParseDialect(string(name))
	if err != nil {
		panic(err)
	}
	return d
}

func must[S ~string, T ~uint8](list []S, parse func(string) (T, error)) (set T) {
	for _, name := range list {
		x, err := parse(string(name))
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
