// Package vfs makes a directory a file system whose objects are addressed by handles, for a server that has no open files:
// NFS version 3 today, and nothing here knows of NFS but the size of a handle.
//
// # Handles
//
// A [Handle] names an object for as long as that exists, across renames and restarts of the process. It is signed by a keyed tag, so
// that a client can use what it was given and nothing else. What it holds depends on what the process may do, see [Info]:
//
//   - "kernel": the kernel's own file handle (name_to_handle_at(2), open_by_handle_at(2)). Needs CAP_DAC_READ_SEARCH and a file
//     system that can be exported.
//   - "index": inode number and time of birth. Where an object is, is remembered in memory; what is not remembered, after
//     a restart say, is searched in the whole directory, during which its users get EAGAIN after a second. On a file system without
//     times of birth such handles end with the process, since they could not be told from those of a later file; but for the
//     root's, which always stays.
//
// # Nothing outside
//
// Names are resolved one component at a time and never through a symbolic link or into another mounted file system. "..", a
// handle, and a cached object lead to what lies beneath the root and to nothing else: an object that somebody moved out is stale
// after [Options.Recheck]. For an object that is no directory and of which the kernel knows no name, that takes a search
// of the directory too.
//
// # Identities
//
// Operations take the caller's [Cred]. Permissions are judged by the mode bits where these say all, and by the kernel
// under the caller's identity where an ACL has a say. What creates, changes or removes runs under the caller's identity: credentials
// belong to threads, so the goroutine is locked to its thread meanwhile, and the thread gets its own identity back
// before it is let go. (Workers that stay locked to their threads cost twice the latency: each hand-over is then a switch of threads.)
// Where the process may not act as others, all callers are the process itself, and [Info] says so.
//
// [Open] clears the process's umask, as modes come from the callers, and takes CAP_SYS_RESOURCE out of its effective
// capabilities, which would let callers exceed quotas.
//
// # Errors
//
// Errors are [unix.Errno] as the system call had it, or [ErrBadHandle]. ESTALE means that the object is gone or no longer
// beneath the root, EAGAIN that the same will work later.
package vfs
