package report

import (
	"strings"
	"testing"
)

// A mount command is parsed to the parts that it was made of.
func TestParseMount(t *testing.T) {
	for _, c := range []struct{ network, address, version, options string }{
		{"rdma", "192.0.2.7", "4.2", "vers=4.2,proto=rdma,port=20049"},
		{"tcp", "fd00::7", "4.1", "vers=4.1,proto=tcp6,port=20049"},
		{"rdma", "nfs.example.com", "3", "vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=2049,nolock"},
	} {
		line := mountLine(c.network, c.address, 20049, 2049, []string{c.version})
		m, ok := ParseMount(line)
		if !ok || m.Server != c.address || strings.Join(m.Options, ",") != c.options {
			t.Errorf("%q gives %+v, %v", line, m, ok)
		}
	}
	for _, bad := range []string{"", "mount", "mount -t nfs -o vers=3 192.0.2.7:/data /mnt", "mount -t nfs -o vers=3 :/ /mnt", "mount -t nfs4 -o vers=3 192.0.2.7:/ /mnt"} {
		if m, ok := ParseMount(bad); ok {
			t.Errorf("%q gives %+v", bad, m)
		}
	}
}
