package condition

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestMessagesEndWithAnAnchor(t *testing.T) {
	want := `no NFSGateway "a" (sluicectl explain GatewayNotFound)`
	for _, c := range []metav1.Condition{
		False("Accepted", "GatewayNotFound", "no NFSGateway %q", "a"), Unknown("Accepted", "GatewayNotFound", "no NFSGateway %q", "a"),
	} {
		if c.Message != want {
			t.Errorf("%s: %q, want %q", c.Status, c.Message, want)
		}
	}
	if c := True("Accepted", "Accepted", "well"); c.Message != "well" {
		t.Errorf("True: %q", c.Message)
	}
}

func TestQuoteIsOneBoundedLine(t *testing.T) {
	if got := Quote(" a\n\tb\x00c  "); got != "a b c" {
		t.Errorf("got %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOfN(rapid.Byte(), 0, 3*quoted).Draw(t, "words"))
		got := Quote(in)
		if len(got) > quoted+len("…") || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\t\x00") {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
	})
}

func TestMergeKeepsTimesOfWhatIsTheSame(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	have := Merge(nil, []metav1.Condition{True("A", "R", "m"), True("B", "R", "m"), True("Gone", "R", "m")}, 1, then)
	got := Merge(have, []metav1.Condition{True("A", "Other", "n"), False("B", "R", "m"), True("New", "R", "m")}, 2, now)
	for i, want := range []metav1.Time{then, now, now} {
		if got[i].LastTransitionTime != want || got[i].ObservedGeneration != 2 {
			t.Errorf("%s: %v of generation %d", got[i].Type, got[i].LastTransitionTime, got[i].ObservedGeneration)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d conditions, want 3", len(got))
	}
}
