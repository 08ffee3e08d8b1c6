package v1alpha1

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Quantity is a number of bytes. In a file it is a whole number, optionally followed by Ki, Mi, Gi
// or Ti.
type Quantity int64

var units = []struct {
	name  string
	shift uint
}{{"Ti", 40}, {"Gi", 30}, {"Mi", 20}, {"Ki", 10}, {"", 0}}

// ParseQuantity parses a quantity.
func ParseQuantity(s string) (Quantity, error) {
	bad := fmt.Errorf("want a whole number of bytes, optionally followed by Ki, Mi, Gi or Ti, such as 4096 or 4Ki")
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		if digits == "" || strings.Trim(digits, "0123456789") != "" {
			return 0, bad
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n > math.MaxInt64>>u.shift {
			return 0, fmt.Errorf("is too large: want less than 8388608Ti")
		}
		return Quantity(n << u.shift), nil
	}
	return 0, bad
}

// String formats q in the largest unit that divides it.
func (q Quantity) String() string {
	for _, u := range units {
		if n := int64(q) >> u.shift; n != 0 && n<<u.shift == int64(q) {
			return strconv.FormatInt(n, 10) + u.name
		}
	}
	return "0"
}

// UnmarshalText parses a quantity.
func (q *Quantity) UnmarshalText(b []byte) (err error) {
	*q, err = ParseQuantity(string(b))
	return err
}

// MarshalText formats a quantity.
func (q Quantity) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalJSON also accepts a bare number of bytes.
func (q *Quantity) UnmarshalJSON(b []byte) error { return unmarshalJSON(b, q) }

// Duration is a time span in Go's format: 20s, 1m30s, 500ms.
type Duration time.Duration

// UnmarshalText parses a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("want a number and its unit, such as 20s, 1m30s or 500ms")
	}
	*d = Duration(v)
	return nil
}

// MarshalText formats a duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }

func unmarshalJSON(b []byte, v interface{ UnmarshalText([]byte) error }) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		b = []byte(s)
	}
	return v.UnmarshalText(b)
}
