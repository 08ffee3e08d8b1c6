// Package prereq ends tests on machines that lack their prerequisites: programs, privileges,
// kernels.
package prereq

import (
	"fmt"
	"os"
	"testing"
)

// Missing skips a test because the machine lacks a prerequisite. With CI=true the test fails
// instead.
//
// "go test" hides skips unless it is verbose, so Missing also appends a line to the file that the
// environment variable NOT_RUN names. "make test-quick" prints that file at its end.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	why := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI has to run this test: %s", why)
	}
	line := fmt.Sprintf("NOT RUN: %s: %s\n", t.Name(), why)
	fmt.Fprint(os.Stderr, line)
	if name := os.Getenv("NOT_RUN"); name != "" {
		if f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			_, _ = f.WriteString(line)
			_ = f.Close()
		}
	}
	t.Skip(why)
}
