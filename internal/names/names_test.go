package names

import (
	"slices"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

func TestExtensions(t *testing.T) {
	if names := OfExtensions(0); names == nil || len(names) > 0 {
		t.Errorf("no extension has the names %#v", names)
	}
	var all rpcrdma.Extensions
	for _, name := range OfExtensions(AllExtensions()) {
		x, err := ParseExtension(name)
		if err != nil || !slices.Equal(OfExtensions(x), []string{name}) || all&x != 0 {
			t.Errorf("%s is %#x, which is %v: %v", name, x, OfExtensions(x), err)
		}
		all |= x
	}
	if all != AllExtensions() {
		t.Errorf("the names stand for %#x, the extensions are %#x", all, AllExtensions())
	}
	if _, err := ParseExtension("Speed"); err == nil || err.Error() != `"Speed" is not an extension: want one of TransportProperties, MessageContinuation, SendBasedPlacement` {
		t.Error(err)
	}
}

func TestRFC5666(t *testing.T) {
	var all rpcrdma.RFC5666
	for _, name := range OfRFC5666(AllRFC5666()) {
		x, err := ParseRFC5666(strings.ToLower(name))
		if err != nil || !slices.Equal(OfRFC5666(x), []string{name}) || MustRFC5666([]string{name}) != x || all&x != 0 {
			t.Errorf("%s is %#x, which is %v: %v", name, x, OfRFC5666(x), err)
		}
		all |= x
	}
	if all != AllRFC5666() {
		t.Errorf("the names stand for %#x, the forms are %#x", all, AllRFC5666())
	}
	if _, err := ParseRFC5666("Speed"); err == nil || err.Error() != `"Speed" is not a form of RFC 5666: want one of Padding, ReadRead, Configuration` {
		t.Error(err)
	}
}

func TestDialects(t *testing.T) {
	for _, name := range Dialects() {
		d, err := ParseDialect(strings.ToUpper(name))
		if err != nil || Dialect(d) != name || MustDialect(name) != d {
			t.Errorf("%s is %v: %v", name, d, err)
		}
	}
	if d, err := ParseDialect(""); d != nil || err != nil {
		t.Errorf("no dialect is %v: %v", d, err)
	}
	if _, err := ParseDialect("Dutch"); err == nil || err.Error() != `"Dutch" is not a dialect of version 2: want one of RoundTrip, WorkingGroup` {
		t.Error(err)
	}
}

// TestConfiguration checks that the configuration has the same names.
func TestConfiguration(t *testing.T) {
	names := []string{string(config.TransportProperties), string(config.MessageContinuation), string(config.SendBasedPlacement)}
	if want := OfExtensions(AllExtensions()); !slices.Equal(names, want) {
		t.Errorf("the configuration has %v, there are %v", names, want)
	}
	dialects := []string{string(config.RoundTrip), string(config.WorkingGroup)}
	if want := Dialects(); !slices.Equal(dialects, want) {
		t.Errorf("the configuration has %v, there are %v", dialects, want)
	}
	forms := []string{string(config.Padding), string(config.ReadRead), string(config.Configuration)}
	if want := OfRFC5666(AllRFC5666()); !slices.Equal(forms, want) {
		t.Errorf("the configuration has %v, there are %v", forms, want)
	}
}

func TestBackward(t *testing.T) {
	for support, want := range map[uint32]string{wire.BackwardNone: "None", wire.BackwardInline: "Inline", wire.BackwardGeneral: "General", 7: "7"} {
		if got := Backward(support); got != want {
			t.Errorf("%d is %s, must be %s", support, got, want)
		}
	}
}
