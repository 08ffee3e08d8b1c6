// Package condition makes the conditions of Sluice's resources. A message of a condition that is
// not True ends with the command that explains it.
package condition

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// True returns a condition with status True.
func True(kind, reason, format string, a ...any) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, a...)}
}

// False returns a condition with status False. The message says the error and its remedy.
func False(kind, reason, format string, a ...any) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, a...) + Anchor(reason)}
}

// Unknown returns a condition with status Unknown.
func Unknown(kind, reason, format string, a ...any) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reason, Message: fmt.Sprintf(format, a...) + Anchor(reason)}
}

// Anchor returns the end of a message: the command that explains the reason.
func Anchor(reason string) string { return " (sluicectl explain " + reason + ")" }

// quoted is the limit on a quotation, in bytes.
const quoted = 600

// Quote returns foreign text as one line for a message, cut to 600 bytes.
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

// Merge returns want with the generation, and with the transition times of have where the status is
// equal.
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
