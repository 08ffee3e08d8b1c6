// Package rewrite is what the proxy changes in calls and replies on their way, and nothing else: no I/O, no time, no connections. The same call is always
// rewritten the same way, so that a replay matches what the backend remembers.
package rewrite

import (
	"sync/atomic"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// Export has the settings for rewriting an export's messages. But for Roots it is not to be
// changed while in use.
type Export struct {
	// UID tells this export from all others, now and after every restart, at every replica: at least 8 bytes.
	UID []byte
	// Signer signs file handles.
	Signer *sign.Signer
	// V3 and Minor say which versions are offered: 3, and 4.0 to 4.2.
	V3    bool
	Minor [3]bool
	// GSS admits RPCSEC_GSS. What it protects is then forwarded as it is. It goes with signing off, since such messages cannot be read.
	GSS bool
	// Roots are known once the backend has been asked, nil before.
	Roots atomic.Pointer[Roots]

	sessions sessionTable
}

// Roots are the backend's own handles of the export's root, untagged, and what its attributes say. A version that the
// backend has never served, or that was not asked for, has no handle.
type Roots struct {
	V3, V4           []byte
	FileID3, FileID4 uint64
	// No3 and No4: the backend does not have version 3, or no 4 that is offered. Then it is not offered here either.
	No3, No4 bool
	// Supported4 and ExclCreat4 are the words of the root's supported_attrs and suppattr_exclcreat,
	// nil if the backend did not tell them.
	Supported4, ExclCreat4 []uint32
	// NoMinor are minor versions of which the backend has said that it does not have them.
	NoMinor [3]bool
	// NoMount: the backend's MOUNT could not be asked for V3 for a while. Then MNT is refused
	// instead of being kept waiting.
	NoMount bool
}

// Caller is what the access rules say of a client's connection.
type Caller struct {
	ReadOnly         bool
	Squash           access.Squash
	AnonUID, AnonGID uint32
}

// Verdict is what is to be done with a call.
type Verdict uint8

const (
	// Answered says that the reply is in the call, and nothing goes to the backend.
	Answered Verdict = iota
	// Forward says that what Call.Args has left in its out goes to the backend, and the reply to Call.Results.
	Forward
	// Resolve is for a MNT of a path beneath the root. Call.Path has the names to be looked up one after the other, from Roots.V3 on; Call.AnswerMount answers.
	Resolve
)
