package neighbour

import (
	"encoding/hex"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"sluice.dev/sluice/internal/speaker/fsm"
)

var (
	us, them  = fsm.MAC{2, 0, 0, 0, 0, 1}, fsm.MAC{2, 0, 0, 0, 0, 2}
	ip4, who  = netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.99")
	ip6, who6 = netip.MustParseAddr("fd00::1:10"), netip.MustParseAddr("fe80::99")
)

// The bytes are those of the RFCs' figures, the checksums were computed by another program.
func TestFrames(t *testing.T) {
	for _, c := range []struct {
		name   string
		frames []frame
		want   string // destination and packet
	}{
		{"ARP probe", arpProbe(us, ip4), "ffffffffffff 0001080006040001 020000000001 00000000 000000000000 c000020a"},
		{"ARP announcement", arpAnnounce(us, ip4)[:1], "ffffffffffff 0001080006040001 020000000001 c000020a 000000000000 c000020a"},
		{"gratuitous ARP reply", arpAnnounce(us, ip4)[1:], "ffffffffffff 0001080006040002 020000000001 c000020a ffffffffffff c000020a"},
		{"ARP reply", arpAnswer(us, fsm.Heard{Address: ip4, From: them, IP: who}), "020000000002 0001080006040002 020000000001 c000020a 020000000002 c0000263"},
		{"solicitation", ndProbe(us, ip6), "3333ff010010 6000000000183aff 00000000000000000000000000000000 ff0200000000000000000001ff010010" +
			" 8700 7d85 00000000 fd000000000000000000000000010010"},
		{"unsolicited advertisement", ndAnnounce(us, ip6), "333300000001 6000000000203aff fd000000000000000000000000010010 ff020000000000000000000000000001" +
			" 8800 5a7b 20000000 fd000000000000000000000000010010 0201020000000001"},
		{"advertisement", ndAnswer(us, fsm.Heard{Address: ip6, From: them, IP: who6}), "020000000002 6000000000203aff fd000000000000000000000000010010 fe800000000000000000000000000099" +
			" 8800 1a65 60000000 fd000000000000000000000000010010 0201020000000001"},
		{"answer to a probe", ndAnswer(us, fsm.Heard{Address: ip6, From: them, IP: netip.IPv6Unspecified()}), "333300000001 6000000000203aff fd000000000000000000000000010010 ff020000000000000000000000000001" +
			" 8800 5a7b 20000000 fd000000000000000000000000010010 0201020000000001"},
	} {
		if len(c.frames) != 1 {
			t.Errorf("%s: %d frames", c.name, len(c.frames))
			continue
		}
		got := hex.EncodeToString(c.frames[0].to[:]) + hex.EncodeToString(c.frames[0].packet)
		if want := strings.ReplaceAll(c.want, " ", ""); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
		}
	}
}

// TestHeard: the parser reads the frames of the writer.
func TestHeard(t *testing.T) {
	h := func(k fsm.Kind, ip netip.Addr, from fsm.MAC, asks netip.Addr) fsm.Heard {
		return fsm.Heard{Kind: k, Address: ip, From: from, IP: asks}
	}
	none := netip.Addr{}
	for _, c := range []struct {
		name   string
		packet []byte
		want   []fsm.Heard
	}{
		{"ARP probe", arpProbe(us, ip4)[0].packet, []fsm.Heard{h(fsm.Probe, ip4, us, netip.IPv4Unspecified())}},
		{"ARP announcement", arpAnnounce(us, ip4)[0].packet, []fsm.Heard{h(fsm.Claim, ip4, us, none)}},
		{"gratuitous ARP reply", arpAnnounce(us, ip4)[1].packet, []fsm.Heard{h(fsm.Claim, ip4, us, none)}},
		{"ARP request", appendARP(nil, arpRequest, them, who, fsm.MAC{}, ip4), []fsm.Heard{h(fsm.Claim, who, them, none), h(fsm.Request, ip4, them, who)}},
		{"solicitation", ndProbe(us, ip6)[0].packet, []fsm.Heard{h(fsm.Probe, ip6, them, netip.IPv6Unspecified())}},
		{"solicitation from somebody", appendND(solicitation, 0, who6, solicitedNode(ip6), ip6, optSource, 1, 2, 0, 0, 0, 0, 2),
			[]fsm.Heard{h(fsm.Claim, who6, them, none), h(fsm.Request, ip6, them, who6)}},
		{"advertisement", ndAnnounce(us, ip6)[0].packet, []fsm.Heard{h(fsm.Claim, ip6, us, none)}},
		{"advertisement without an option", appendND(advertisement, 0, ip6, allNodes, ip6), []fsm.Heard{h(fsm.Claim, ip6, them, none)}},
	} {
		parse := func(b []byte) ([]fsm.Heard, error) { return ParseND(b, them) }
		if c.packet[0] == 0 {
			parse = ParseARP
		}
		got, err := parse(c.packet)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
		for n := range c.packet {
			if got, err := parse(c.packet[:n]); err == nil {
				t.Errorf("%s, cut at %d of %d bytes: %+v, want an error", c.name, n, len(c.packet), got)
			}
		}
	}
}

func TestRefusedPackets(t *testing.T) {
	with := func(b []byte, at int, v byte) []byte {
		b = append([]byte{}, b...)
		b[at] = v
		return b
	}
	arp, nd := arpProbe(us, ip4)[0].packet, ndAnnounce(us, ip6)[0].packet
	for want, b := range map[string][]byte{
		"hardware type": with(arp, 1, 6),
		"protocol 0x":   with(arp, 2, 0x86),
		"lengths 8":     with(arp, 4, 8),
		"operation 3":   with(arp, 7, 3),
	} {
		if _, err := ParseARP(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for want, b := range map[string][]byte{
		"hop limit 64":   with(nd, 7, 64),
		"next header 17": with(nd, 6, 17),
		"payload length": with(nd, 5, 200),
		"checksum":       with(nd, ndLen-1, 9),
		"type 134":       appendND(134, 0, ip6, allNodes, ip6),
		"target ff02::1": appendND(advertisement, 0, ip6, allNodes, allNodes),
		"cut off":        appendND(advertisement, 0, ip6, allNodes, ip6, optTarget, 0, 0, 0, 0, 0, 0, 0),
	} {
		if _, err := ParseND(b, us); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Nothing that arrives is more than a claim and a question.
func FuzzParse(f *testing.F) {
	f.Add(arpAnnounce(us, ip4)[0].packet)
	f.Add(ndAnnounce(us, ip6)[0].packet)
	f.Add(ndProbe(us, ip6)[0].packet)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func() ([]fsm.Heard, error){
			func() ([]fsm.Heard, error) { return ParseARP(b) },
			func() ([]fsm.Heard, error) { return ParseND(b, them) },
		} {
			heard, err := parse()
			if err != nil && len(heard) > 0 || len(heard) > 2 {
				t.Fatalf("%d heard, error %v", len(heard), err)
			}
			for _, h := range heard {
				if !h.Address.IsValid() {
					t.Fatalf("no address: %+v", h)
				}
			}
		}
	})
}
