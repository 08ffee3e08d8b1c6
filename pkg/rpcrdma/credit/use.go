package credit

import "time"

const (
	// roundTrip is the longest round trip that counts: a client that uses up its grant within it
	// may have more to send.
	roundTrip = 100 * time.Millisecond
	// restTime is how long a connection keeps credits that it does not use.
	restTime = time.Second
)

// use estimates how many credits a connection wants, by its calls.
//
// The server sees neither the calls that a client has ready, nor their time on the way. So the most
// calls in a roundTrip stand for it: with as many credits no call has had to wait.
type use struct {
	want   int
	peak   int           // most calls in a roundTrip
	looked time.Duration // since when
}

// note counts calls that took d, until now, with a grant.
func (u *use) note(calls int, d, now time.Duration, grant int, l Limits) {
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
