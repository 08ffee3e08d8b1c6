// Package vfs addresses the objects of a directory by handles, for servers of NFS. It knows of NFS
// only the size of a handle and the verifier of an exclusive create.
//
// Most operations take an object and need no open file: the object's descriptors are opened by need
// and closed when they are idle. A [File] is an open file of its own, which locks belong to, and
// which keeps an object whose last name was removed.
//
// # Handles
//
// A [Handle] names an object while that exists, across renames and restarts of the process. A keyed
// tag signs it, so a client can use only the handles that it was given. Its contents depend on the
// process's privileges, see [Info]:
//
//   - "kernel": the kernel's file handle (name_to_handle_at(2), open_by_handle_at(2)). It needs
//     CAP_DAC_READ_SEARCH and an exportable file system.
//   - "index": inode number and time of birth. The places of objects are kept in memory. If a place
//     is unknown, for example after a restart, the whole directory is searched, and callers get
//     EAGAIN after a second. On a file system without times of birth these handles end with the
//     process, since a later file could have the same inode number; the root's stays valid.
//
// # Confinement
//
// Names are resolved one component at a time, never through a symbolic link or into another mount.
// "..", a handle and a cached object reach only objects beneath the root: an object that was moved
// out is stale after [Options.Recheck]. The check of a file whose name the kernel does not know
// takes a search too.
//
// # Identities
//
// Operations take the caller's [Cred]. Mode bits decide about permissions; where an ACL matters,
// the kernel decides under the caller's identity. Calls that create, change or remove run under the
// caller's identity, too. Credentials belong to threads, so the goroutine is locked to its thread
// for the call, and the thread's own identity is restored afterwards. (Workers that are always
// locked cost twice the latency: each hand-over then switches threads.) If the process may not act
// as others, all callers are the process itself; [Info] reports that.
//
// [Open] clears the process's umask, since modes come from callers, and drops CAP_SYS_RESOURCE,
// with which callers could exceed quotas.
//
// # Errors
//
// Errors are the system call's [unix.Errno], or [ErrBadHandle]. ESTALE: the object is gone or no
// longer beneath the root. EAGAIN: try again later.
package vfs
