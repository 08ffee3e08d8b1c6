package sluicectl

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestExplain checks the text of a reason, the list, and an unknown reason.
func TestExplain(t *testing.T) {
	explain := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := Run(context.Background(), "test", append([]string{"explain"}, args...), Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		return code, out.String()
	}
	code, text := explain("addressnotheld")
	if !strings.HasPrefix(text, "Condition RDMAReady: AddressNotHeld\n\n") || strings.Contains(text, "#") || len(text) < 100 || code != 0 {
		t.Errorf("%d: %q", code, text)
	}
	code, list := explain()
	for _, want := range []string{"Condition Accepted, of an export\n  Accepted\n", "  AddressNotHeld\n"} {
		if !strings.Contains(list, want) || code != 0 {
			t.Errorf("%d: no %q in %q", code, want, list)
		}
	}
	code, text = explain("Nothing")
	if code != 1 || !strings.Contains(text, `"Nothing" is not the reason of a condition: sluicectl explain lists them`) {
		t.Errorf("%d: %q", code, text)
	}
}
