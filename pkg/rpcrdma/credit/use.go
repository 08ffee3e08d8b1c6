package credit

import "time"

const (
	// roundTrip is the longest round trip that counts: a client that uses its whole grant within it
	// may have more to send.
	roundTrip = 100 * time.Millisecond
	// restTime is how long a connection keeps unused credits.
	restTime = time.Second
)

// use estimates the credits that a connection wants, from its calls. The server sees neither a
// client's waiting calls nor their time in transit. So it uses the maximum of calls in a roundTrip:
// with as many credits no call has had to wait.
type use struct {
	want   int
	peak   int           // maximum of calls in a roundTrip
	looked time.Duration // start of the period
}

// observe counts calls that took d, until now, with a grant.
func (u *use) observe(calls int, d, now time.Duration, grant int, l Limits) {
	need := calls
	if d > roundTrip {
		need = int(time.Duration(calls) * roundTrip / d)
	}
	u.peak = max(u.peak, need)
	switch {
	case need >= grant:
		u.want = min(2*grant, l.Max)
		u.peak, u.looked = need, now
	case now-u.looked >= restTime:
		if 4*u.peak < grant {
			u.want = 2 * u.peak
		}
		u.peak, u.looked = 0, now
	}
	u.want = max(u.want, l.Min)
}
