package benchrtt

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// report has all measurements, in the form of bench-rtt.json.
type report struct {
	Limits  limits    `json:"limits"`
	Opening []opening `json:"opening"`
	Rows    []row     `json:"rows"`
	// Delayed was measured over software iWARP.
	Delayed []delayed `json:"iwarp_delayed"`
}

type limits struct {
	Inline          int `json:"inline_bytes"`
	Credits         int `json:"credits"`
	ReceiveHead     int `json:"receive_bytes"`
	ReceiveTargeted int `json:"receive_targetable_bytes"`
	Transmissions   int `json:"transmissions_each_way"`
}

// opening is the cost from Dial to the reply of the first call.
type opening struct {
	Engine     string  `json:"engine"`
	RoundTrips float64 `json:"round_trips"`
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// find returns a measured row.
func (r *report) find(op, engine string, n network) *row {
	for i := range r.Rows {
		if x := &r.Rows[i]; x.Op == op && x.Engine == engine && x.network == n {
			return x
		}
	}
	return nil
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "Limits: %d KiB inline, %d credits; with the extension, receives of %d KiB + %d KiB targetable, and %d transmissions each way.\n",
		inline>>10, credits, receiveHead>>10, receiveData>>10, transmissions)
	fmt.Fprintf(w, "One call at a time, from the client's call to its reply, in virtual time: only the wire takes any.\n")
	for _, o := range r.Opening {
		fmt.Fprintf(w, "%s: %g round trips from Dial to the answer of the first call, on a new connection.\n", o.Engine, o.RoundTrips)
	}
	r.printCounts(w)
	for _, bandwidth := range bandwidths {
		r.printTimes(w, bandwidth)
	}
	fmt.Fprintf(w, "\nAn RTT of 400µs is 25 miles of fibre, at 16µs a mile there and back. READDIR is READDIRPLUS; SETACL is that of NFSACL.\n"+
		"What GETATTR pins is the posted receives.\n")
	printDelayed(w, r.Delayed)
}

// printCounts prints the figures that do not depend on the network.
func (r *report) printCounts(w io.Writer) {
	fmt.Fprintf(w, "\nPer call: round trips, messages, RDMA Reads and Writes, registrations; what all of them carry, zeros before placed data included; what is\n"+
		"pinned of buffers at the client + at the server.\n\n%-14s", "")
	for _, e := range engines {
		fmt.Fprintf(w, " | %-41s", e.name)
	}
	fmt.Fprintf(w, "\n%-14s%s\n", "", strings.Repeat(fmt.Sprintf(" | %5s %4s %4s %4s %6s %13s", "trips", "msgs", "rdma", "regs", "KiB", "pinned KiB"), len(engines)))
	n := r.Rows[0].network
	for _, op := range operations {
		fmt.Fprintf(w, "%-14s", op.name)
		for _, e := range engines {
			x := r.find(op.name, e.name, n)
			fmt.Fprintf(w, " | %5g %4d %4d %4d %6.1f %13s", x.RoundTrips, x.Messages, x.Operations, x.Registrations, float64(x.Bytes)/1024,
				fmt.Sprintf("%d + %d", (x.PinnedClient+1023)>>10, (x.PinnedServer+1023)>>10))
		}
		fmt.Fprintln(w)
	}
}

// printTimes prints the times at one bandwidth.
func (r *report) printTimes(w io.Writer, bandwidth int64) {
	fmt.Fprintf(w, "\nTime in µs at %s, by round-trip time, in the same order of versions:\n\n%-14s", speed(bandwidth), "")
	for _, rtt := range r.distances() {
		fmt.Fprintf(w, " | %-*v", 9*len(engines)-1, rtt)
	}
	fmt.Fprintln(w)
	for _, op := range operations {
		fmt.Fprintf(w, "%-14s", op.name)
		for _, rtt := range r.distances() {
			fmt.Fprint(w, " |")
			for _, e := range engines {
				fmt.Fprintf(w, " %8.1f", r.find(op.name, e.name, network{rtt, bandwidth}).Time)
			}
		}
		fmt.Fprintln(w)
	}
}

// distances returns the measured ones.
func (r *report) distances() (list []time.Duration) {
	seen := map[time.Duration]bool{}
	for _, x := range r.Rows {
		if !seen[x.network.rtt] {
			seen[x.network.rtt] = true
			list = append(list, x.network.rtt)
		}
	}
	return list
}
