package clienthost

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun: the probe reports the problem of the last look, and the device goes with the program.
func TestRun(t *testing.T) {
	n := newNode(t, siw)
	probe := func(want int, text string) {
		t.Helper()
		var out bytes.Buffer
		if code := check(n.state, &out); code != want || !strings.Contains(out.String(), text) {
			t.Errorf("exit code %d with %q, want %d with %q", code, &out, want, text)
		}
	}
	probe(1, "has not finished its first look")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n.standard.Store("")
		done := make(chan struct{})
		go func() { n.run(ctx); close(done) }()
		synctest.Wait()
		probe(1, "there is no default route")
		n.standard.Store("eth1")
		time.Sleep(interval)
		synctest.Wait()
		probe(0, "")
		n.has(t, device{"siw0", "eth1", "iw"})
		cancel()
		<-done
		n.has(t)
		probe(1, "has not finished its first look")
	})
	if _, err := os.Stat(n.recordFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record stays: %v", err)
	}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--link-type=tcp":                                   `--link-type "tcp": want siw or rxe`,
		"--link-name=siw0":                                  "need --link-type",
		"--link-type=siw --link-name=a/b":                   `--link-name "a/b"`,
		"--link-type=siw --interface=a-much-too-long":       "",
		"--link-type=siw --interface=an-interface-too-long": "at most 15 bytes",
		"siw":             `unexpected argument "siw"`,
		"--link-type=rxe": "",
	} {
		o, err := parse(strings.Fields(args), &bytes.Buffer{})
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
		if args == "--link-type=rxe" && o.want != (link{kind: "rxe", name: "rxe0"}) {
			t.Errorf("%s: %+v", args, o.want)
		}
	}
}
