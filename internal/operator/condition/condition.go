// Package condition makes the conditions of Sluice's resources. Messages of conditions that are not True end with the place in the documentation that
// has more to say.
package condition

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Guide has an anchor for each reason, which is its name in lower case.
const Guide = "docs/troubleshooting.md"

// True says that things are well.
func True(kind, reason, format string, a ...any) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, a...)}
}

// False says what is wrong, and what to do.
func False(kind, reason, format string, a ...any) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, a...) + Anchor(reason)}
}

// Unknown says why it cannot be told.
func Unknown(kind, reason, format string, a ...any) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reason, Message: fmt.Sprintf(format, a...) + Anchor(reason)}
}

// Anchor is what a message ends with.
func Anchor(reason string) string { return " (" + Guide + "#" + strings.ToLower(reason) + ")" }

// quoted is the most bytes that are taken of somebody else's words.
const quoted = 600

// Quote makes somebody else's words one line that is fit for a message.
func Quote(words string) string {
	words = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(words, "?"), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(words) <= quoted {
		return words
	}
	n := quoted
	for !utf8.RuneStart(words[n]) {
		n--
	}
	return words[:n] + "…"
}

// Merge returns conditions as they are to be written: those of want, of the given generation, with the times of have where the status is the same.
func Merge(have, want []metav1.Condition, generation int64, now metav1.Time) []metav1.Condition {
	out := make([]metav1.Condition, len(want))
	for i, c := range want {
		c.ObservedGeneration, c.LastTransitionTime = generation, now
		if old := meta.FindStatusCondition(have, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out[i] = c
	}
	return out
}
