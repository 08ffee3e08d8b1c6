// Package credit decides how many calls a client may have outstanding (RFC 8166 section 3.3.1).
//
// A [Policy] serves all connections of a server, and opens an [Account] for each of them. [Static]
// grants a fixed number. [Adaptive] divides a memory budget among connections by their use, and
// lowers grants while the backend is slow. A [Memory] bounds several adaptive policies together.
package credit

// Max is the maximum number of credits of a connection.
const Max = 4096

// Policy decides how many calls may be outstanding on a connection.
type Policy interface {
	// Open makes the account of a new connection.
	Open() Account
}

// Account is a connection's part in a Policy. Its methods are on the data path: they do not block
// or allocate.
type Account interface {
	// Credits returns how many calls may be outstanding from now on, 1 to Max. The peer has
	// requested, or granted, the number requested; inUse calls are outstanding. Posted receives
	// stand for earlier grants, so a smaller number takes effect slowly.
	Credits(requested, inUse int) int
	// Max is the upper bound of Credits.
	Max() int
	// Close ends the account.
	Close()
}

// ReceiveAccount is an Account that also counts the memory for its credits.
type ReceiveAccount interface {
	Account
	// Posted is called after Credits. Receives for n credits are posted or may yet be; new ones
	// have size bytes each.
	Posted(n, size int)
}

// Static is a Policy that always grants the same number, 1 to 4096.
type Static int

// Open implements Policy.
func (s Static) Open() Account { return s }

// Credits implements Account.
func (s Static) Credits(int, int) int { return min(max(int(s), 1), Max) }

// Max implements Account.
func (s Static) Max() int { return s.Credits(0, 0) }

// Close implements Account.
func (s Static) Close() {}
