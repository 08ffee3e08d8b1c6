package main

import "testing"

func TestParseSummary(t *testing.T) {
	calls, err := parseSummary([]byte(`    calls syscall
--------- ----------------
     4000 fstat
      300 sendmsg
       20 futex
--------- ----------------
     4320 total
`), 4000)
	if err != nil || calls["fstat"] != 1 || len(calls) != 3 {
		t.Errorf("%v, %v", calls, err)
	}
	if got, want := mostFrequent(calls), "1.08, fstat 1.00, sendmsg 0.07"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := parseSummary([]byte("strace: no\n"), 1); err == nil {
		t.Error("an empty table is accepted")
	}
}
