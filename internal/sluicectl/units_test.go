package sluicectl

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]target{
		"nfs+rdma://host":                             {rdma: true, address: "host:20049", export: "/", path: "/"},
		"nfs+tcp://host/":                             {address: "host:2049", export: "/", path: "/", hasSlash: true},
		"nfs+tcp://host:77/a/../b//c/":                {address: "host:77", export: "/", path: "/b/c", hasSlash: true},
		"nfs+rdma://[::1]:5/a%20b%3fc":                {rdma: true, address: "[::1]:5", export: "/", path: "/a b?c"},
		"nfs+tcp://h/x?mountport=635&export=/srv/dat": {address: "h:2049", mount: "h:635", export: "/srv/dat", path: "/x"},
		"nfs+tcp://h/../../etc":                       {address: "h:2049", export: "/", path: "/etc"},
		"nfs+tcp://h/[a":                              {address: "h:2049", export: "/", path: "/[a"},
		"nfs+tcp://h/a%2A/x*[b-c]%2a%5C/./y": {address: "h:2049", export: "/", path: `/a*/x*[b-c]*\/y`, globs: []element{
			{"a*", ""}, {`x*[b-c]*\`, `x*[b-c]\*\\`}, {"y", ""},
		}},
	} {
		want.url = in
		got, err := parseTarget(in)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v, must be %+v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"":                               "it must begin with nfs+rdma:// or nfs+tcp://",
		"nfs://h/a":                      "nfs:// leaves the transport open: nfs+tcp://h/a or nfs+rdma://h/a",
		"nfs+tcp:///x":                   "it names no host",
		"nfs+tcp:x":                      "it may have a host, a port, a path and a query, no more",
		"nfs+tcp://me@h/x":               "it may have a host, a port, a path and a query, no more",
		"nfs+tcp://h:0/":                 `port is "0", must be 1 to 65535`,
		"nfs+tcp://h:65536/":             `port is "65536", must be 1 to 65535`,
		"nfs+tcp://h:x/":                 `invalid port ":x" after host`,
		"nfs+tcp://h/?mountport=-1":      `mountport is "-1", must be 1 to 65535`,
		"nfs+tcp://h/?export=x":          `export is "x", must begin with a slash`,
		"nfs+tcp://h/?exprot=/x":         `its query has "exprot", only export and mountport are known`,
		"nfs+tcp://h/%zz":                `invalid URL escape "%zz"`,
		"nfs+tcp://h/?export=%zz":        `its query: invalid URL escape "%zz"`,
		"nfs+tcp://" + "h\x7f" + "/path": "net/url: invalid control character in URL",
	} {
		_, err := parseTarget(in)
		if err == nil || !strings.HasSuffix(err.Error(), "is no URL that I understand: "+want) {
			t.Errorf("%q: %v, must say %q", in, err, want)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	f.Add("nfs+rdma://host:1/a/b?export=/x&mountport=2")
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := parseTarget(s); err == nil && (!strings.HasPrefix(got.path, "/") || strings.Contains(got.path, "/../") || got.address == "") {
			t.Fatalf("%q: %+v", s, got)
		}
	})
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "4096": 4096, "4K": 4096, "4k": 4096, "4KiB": 4096, "1M": 1 << 20, "3GiB": 3 << 30, "2Ti": 2 << 40, "7B": 7} {
		var s sizeFlag
		if err := s.Set(in); err != nil || int64(s) != want {
			t.Errorf("%s: %d, %v", in, s, err)
		}
	}
	for _, in := range []string{"", "K", "-1", "1.5M", "1X", "1 K", "9999999999999T", "1KK"} {
		var s sizeFlag
		if s.Set(in) == nil {
			t.Errorf("%q is %d", in, s)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB", 1<<62 + 1: "4 EiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("%d: %q, must be %q", n, got, want)
		}
	}
}

func TestModeString(t *testing.T) {
	for want, a := range map[string]nfs3.Attr{
		"-rw-r--r--": {Type: nfs3.Reg, Mode: 0o644}, "drwxrwxrwt": {Type: nfs3.Dir, Mode: 0o1777}, "lrwxrwxrwx": {Type: nfs3.Lnk, Mode: 0o777},
		"c---------": {Type: nfs3.Chr}, "brw-------": {Type: nfs3.Blk, Mode: 0o600}, "prw-------": {Type: nfs3.FIFO, Mode: 0o600}, "srwxr-xr-x": {Type: nfs3.Sock, Mode: 0o755},
		"-rwSr-Sr-T": {Type: nfs3.Reg, Mode: 0o7644}, "-rwsr-sr-t": {Type: nfs3.Reg, Mode: 0o7755},
	} {
		if got := modeString(&a); got != want {
			t.Errorf("%o: %q, must be %q", a.Mode, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"plain": "plain", "mit Ümlaut": "mit Ümlaut", `quote"back\slash`: `quote"back\slash`, "a\nb": `a\nb`, "\x1b[2J": `\x1b[2J`, "\xff": `\xff`} {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, must be %q", in, got, want)
		}
	}
}

// On a terminal of any width the bar fits into one line.
func TestProgressBar(t *testing.T) {
	for width := 40; width < 200; width++ {
		p := &progress{name: strings.Repeat("name", 30), total: 100, moved: 50, width: width}
		if got := p.bar("figures"); len(got) >= width {
			t.Fatalf("width %d: %d bytes: %s", width, len(got), got)
		}
	}
	p := &progress{name: "f", total: 100, moved: 25, width: 40}
	if diff := cmp.Diff("f [======                    ]  figures", p.bar("figures")); diff != "" {
		t.Error(diff)
	}
}

// Elsewhere a line comes now and then.
func TestProgressLines(t *testing.T) {
	var w bytes.Buffer
	a := &app{Streams: Streams{Err: &w}}
	p := a.newProgress("f", 4096)
	p.began = time.Now().Add(-10 * time.Second)
	p.reported = p.began
	p.add(1024)
	p.add(1024)
	if got := w.String(); !strings.HasPrefix(got, "f:  25%  1 KiB of 4 KiB  10") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	w.Reset()
	p.committed(20 * time.Millisecond)
	if err := p.end(nil); err != nil || !strings.Contains(w.String(), ", of it 20ms for COMMIT, ") {
		t.Errorf("%q", w.String())
	}
	w.Reset()
	p = a.newCounter("tree", "files", 0)
	p.expect(100)
	p.expect(300)
	p.add(300)
	p.began = time.Now().Add(-10 * time.Second)
	p.reported = p.began
	p.count(1)
	if got := w.String(); !strings.HasPrefix(got, "tree:  75%  300 B of 400 B  1 of 2 files  ") {
		t.Errorf("%q", got)
	}
}
