// Package rewrite edits the proxy's calls and replies. It does no I/O and knows neither time nor
// connections. It always rewrites a call the same way, so that a replay matches the backend's
// memory of the call.
package rewrite

import (
	"sync/atomic"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// Export is the configuration for rewriting an export's messages. Only Roots may change while in
// use.
type Export struct {
	// UID identifies the export for ever, across restarts and replicas: at least 8 bytes.
	UID []byte
	// Signer signs file handles.
	Signer *sign.Signer
	// V3 and Minor are the offered versions: 3, and 4.0 to 4.2.
	V3    bool
	Minor [3]bool
	// GSS permits RPCSEC_GSS. Protected messages pass unchanged and unread, so signing must be off.
	GSS bool
	// Roots is nil until the backend has been asked.
	Roots atomic.Pointer[Roots]

	sessions sessionTable
}

// Roots holds the backend's handles of the export's root, without tags, and its attributes. A
// version that the backend has never served, or that was not asked for, has no handle.
type Roots struct {
	V3, V4           []byte
	FileID3, FileID4 uint64
	// No3 and No4: the backend lacks version 3, or all offered minor versions of 4. They are not
	// offered here either.
	No3, No4 bool
	// Supported4 and ExclCreat4 are the words of the root's supported_attrs and suppattr_exclcreat,
	// nil if unknown.
	Supported4, ExclCreat4 []uint32
	// NoMinor marks minor versions that the backend has refused.
	NoMinor [3]bool
	// NoMount: the backend's MOUNT has failed for a while. MNT is refused instead of waiting.
	NoMount bool
}

// Caller is the result of the access rules for a client's connection.
type Caller struct {
	ReadOnly         bool
	Squash           access.Squash
	AnonUID, AnonGID uint32
}

// Verdict is the decision on a call.
type Verdict uint8

const (
	// Answered means that the reply is in the call: send nothing to the backend.
	Answered Verdict = iota
	// Forward means: send the message from Call.Args to the backend, and pass its reply to
	// Call.Results.
	Forward
	// Resolve means: look up the names in Call.Path one by one, from Roots.V3 on, then call
	// Call.AnswerMount.
	Resolve
)
