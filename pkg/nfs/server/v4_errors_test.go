package server

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/test/prereq"
)

// errorEnv is a server with an object of each kind, and clients of each kind.
type errorEnv struct {
	*session4
	other *session4 // another client of the same user
	user  *session4 // a client of a user without rights
	guest *session4 // a client with read-only access
	open  opened    // "open", by session4, for reading and writing
	lock  nfs4.StateID
}

// readOnlyNetwork has the clients with read-only access.
const readOnlyNetwork = "192.0.2.0/24"

func newErrorEnv(t *testing.T) *errorEnv {
	t.Helper()
	rules := append([]Rule{{Networks: []netip.Prefix{netip.MustParsePrefix(readOnlyNetwork)}, Squash: SquashNone, ReadOnly: true}}, everyone...)
	r := newEnv4(t, func(c *Config) { c.Access = rules })
	if !r.s.Info().Identities {
		prereq.Missing(t, "the process cannot act as others")
	}
	tree4(t, r.dir)
	r.must(os.Chmod(r.dir, 0o755))
	r.put("open", "0123456789")
	r.put("secret", "0123456789")
	r.must(os.Chmod(r.path("secret"), 0o600))
	r.must(os.MkdirAll(r.path("closed/inner"), 0o700))
	r.must(os.Chmod(r.path("closed"), 0o700))
	r.must(unix.Mkfifo(r.path("pipe"), 0o644))
	r.must(unix.Mknod(r.path("socket"), unix.S_IFSOCK|0o644, 0))
	for name, kind := range map[string]uint32{"block": unix.S_IFBLK, "char": unix.S_IFCHR} {
		if err := unix.Mknod(r.path(name), kind|0o644, int(unix.Mkdev(1, 3))); err != nil {
			prereq.Missing(t, "the process cannot make devices: %v", err)
		}
	}
	e := &errorEnv{session4: r.session("client"), other: r.session("other")}
	e.user = r.as(1001, 1001).session("user")
	e.guest = r.with(sysCred(t, 0, 0), "192.0.2.1:700").session("guest")
	e.open = e.session4.open("owner", accRW, 0, noCreate, "open")
	e.lock = e.locked(putFH(e.open.handle), lockNew(e.open, "locker", nfs4.LockWrite, 0, 4))
	return e
}

// Objects that are no regular files.
var specials = []string{"pipe", "socket", "block", "char"}

// failure is a COMPOUND whose last operation fails, unless early is set.
type failure struct {
	op   nfs4.Op
	want nfs4.Status
	name string
	ops  []Raw     // behind SEQUENCE
	by   *session4 // nil is errorEnv's
	// alone: the operations stand without SEQUENCE. early: so many operations behind the failing
	// one are not reached.
	alone bool
	early int
}

// in is a list of operations with the object as the current filehandle.
func in(object string, ops ...Raw) []Raw {
	list := []Raw{putRoot}
	for _, name := range strings.Split(object, "/") {
		if name != "" {
			list = append(list, lookup4(name))
		}
	}
	return append(list, ops...)
}

// failures are the lists of the groups of operations.
var failures = []func(*errorEnv) []failure{
	sessionFailures, handleFailures, nameFailures, attrFailures, ioFailures, openFailures, lockFailures, rangeFailures, xattrFailures,
}

// testFailures calls each operation, and checks its status and that nothing has changed.
func testFailures(t *testing.T, list func(*errorEnv) []failure) {
	e := newErrorEnv(t)
	all := list(e)
	before := e.snapshot()
	for _, f := range all {
		by := f.by
		if by == nil {
			by = e.session4
		}
		var res *Results
		n := len(f.ops) - f.early
		if f.alone {
			res = by.compound(1, f.ops...)
			n--
		} else {
			res = by.do(f.ops...)
		}
		what := f.op.String() + ", " + f.name
		if expect(t, what, res, f.want); len(res.Ops) != n+1 || res.Ops[n].Code != uint32(f.op) {
			t.Errorf("%s: %d results of %d", what, len(res.Ops), n+1)
		}
		if after := e.snapshot(); after != before {
			t.Fatalf("%s changed\n%s\nto\n%s", what, before, after)
		}
	}
}

// snapshot describes all files and all state.
func (e *errorEnv) snapshot() string {
	e.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", e.s.v4.state.Stats(time.Now()))
	e.must(filepath.WalkDir(e.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %o %d:%d %d links %d bytes %v %v\n", path, st.Mode, st.Uid, st.Gid, st.Nlink, st.Size, st.Mtim, st.Ctim)
		return nil
	}))
	return b.String()
}

// errorsOf are the errors of each operation in RFC 8881 section 15.2, RFC 7862 section 11.2 and
// RFC 8276 section 8.4.5, without those of everyOperation.
var errorsOf = map[nfs4.Op]string{
	nfs4.OpAccess:            "ACCESS INVAL",
	nfs4.OpBackchannelCtl:    "INVAL NOENT",
	nfs4.OpBindConnToSession: "BADSESSION BAD_SESSION_DIGEST INVAL NOT_ONLY_OP",
	nfs4.OpClose:             "ADMIN_REVOKED BAD_STATEID EXPIRED LOCKS_HELD OLD_STATEID",
	nfs4.OpCommit:            "ACCESS ISDIR SYMLINK WRONG_TYPE",
	nfs4.OpCreate:            "ACCESS ATTRNOTSUPP BADCHAR BADNAME BADOWNER BADTYPE DQUOT EXIST INVAL MLINK NAMETOOLONG NOSPC NOTDIR PERM ROFS",
	nfs4.OpCreateSession:     "CLID_INUSE INVAL NOENT NOT_ONLY_OP NOSPC SEQ_MISORDERED STALE_CLIENTID TOOSMALL",
	nfs4.OpDelegReturn:       "ADMIN_REVOKED BAD_STATEID DELEG_REVOKED EXPIRED INVAL NOTSUPP OLD_STATEID",
	nfs4.OpDestroyClientID:   "CLIENTID_BUSY NOT_ONLY_OP STALE_CLIENTID",
	nfs4.OpDestroySession:    "BACK_CHAN_BUSY BADSESSION CB_PATH_DOWN CONN_NOT_BOUND_TO_SESSION NOT_ONLY_OP STALE_CLIENTID",
	nfs4.OpExchangeID:        "BADCHAR CLID_INUSE ENCR_ALG_UNSUPP HASH_ALG_UNSUPP INVAL NOENT NOT_ONLY_OP NOT_SAME",
	nfs4.OpFreeStateID:       "BAD_STATEID LOCKS_HELD OLD_STATEID",
	nfs4.OpGetAttr:           "ACCESS GRACE INVAL WRONG_TYPE",
	nfs4.OpGetFH:             "",
	nfs4.OpLink:              "ACCESS BADCHAR BADNAME DQUOT EXIST FILE_OPEN GRACE INVAL ISDIR MLINK NAMETOOLONG NOSPC NOTDIR NOTSUPP ROFS SYMLINK WRONG_TYPE XDEV",
	nfs4.OpLock:              "ACCESS ADMIN_REVOKED BAD_RANGE BAD_STATEID DEADLOCK DENIED EXPIRED GRACE INVAL ISDIR LOCK_NOTSUPP LOCK_RANGE NO_GRACE OLD_STATEID OPENMODE RECLAIM_BAD RECLAIM_CONFLICT ROFS SYMLINK WRONG_TYPE",
	nfs4.OpLockT:             "ACCESS BAD_RANGE DENIED GRACE INVAL ISDIR LOCK_RANGE ROFS SYMLINK WRONG_TYPE",
	nfs4.OpLockU:             "ACCESS ADMIN_REVOKED BAD_RANGE BAD_STATEID EXPIRED INVAL LOCK_RANGE OLD_STATEID",
	nfs4.OpLookup:            "ACCESS BADCHAR BADNAME INVAL NAMETOOLONG NOENT NOTDIR SYMLINK",
	nfs4.OpLookupP:           "ACCESS NOENT NOTDIR SYMLINK",
	nfs4.OpNVerify:           "ACCESS ATTRNOTSUPP BADCHAR GRACE INVAL SAME UNKNOWN_LAYOUTTYPE WRONG_TYPE",
	nfs4.OpOpen:              "ACCESS ADMIN_REVOKED ATTRNOTSUPP BADCHAR BADNAME BADOWNER BAD_STATEID DELEG_ALREADY_WANTED DELEG_REVOKED DQUOT EXIST EXPIRED FBIG GRACE INVAL ISDIR NAMETOOLONG NOENT NOSPC NOTDIR NO_GRACE OLD_STATEID PERM RECLAIM_BAD RECLAIM_CONFLICT ROFS SHARE_DENIED SYMLINK WRONG_TYPE",
	nfs4.OpOpenDowngrade:     "ADMIN_REVOKED BAD_STATEID EXPIRED INVAL OLD_STATEID ROFS",
	nfs4.OpPutFH:             "BADHANDLE STALE",
	nfs4.OpPutPubFH:          "",
	nfs4.OpPutRootFH:         "",
	nfs4.OpRead:              "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED EXPIRED GRACE INVAL ISDIR LOCKED OLD_STATEID OPENMODE PNFS_IO_HOLE PNFS_NO_LAYOUT SYMLINK WRONG_TYPE",
	nfs4.OpReaddir:           "ACCESS BAD_COOKIE INVAL NOTDIR NOT_SAME TOOSMALL",
	nfs4.OpReadlink:          "ACCESS INVAL WRONG_TYPE",
	nfs4.OpReclaimComplete:   "COMPLETE_ALREADY INVAL WRONG_TYPE",
	nfs4.OpRemove:            "ACCESS BADCHAR BADNAME FILE_OPEN GRACE INVAL NAMETOOLONG NOENT NOTDIR NOTEMPTY ROFS",
	nfs4.OpRename:            "ACCESS BADCHAR BADNAME DQUOT EXIST FILE_OPEN GRACE INVAL MLINK NAMETOOLONG NOENT NOSPC NOTDIR NOTEMPTY ROFS XDEV",
	nfs4.OpRestoreFH:         "NOFILEHANDLE",
	nfs4.OpSaveFH:            "",
	nfs4.OpSecInfo:           "ACCESS BADCHAR BADNAME INVAL NAMETOOLONG NOENT NOTDIR",
	nfs4.OpSecInfoNoName:     "ACCESS INVAL NOENT NOTDIR NOTSUPP",
	nfs4.OpSequence:          "BADSESSION BADSLOT BAD_HIGH_SLOT CONN_NOT_BOUND_TO_SESSION SEQUENCE_POS SEQ_FALSE_RETRY SEQ_MISORDERED",
	nfs4.OpSetSSV:            "BAD_SESSION_DIGEST INVAL",
	nfs4.OpSetAttr:           "ACCESS ADMIN_REVOKED ATTRNOTSUPP BADCHAR BADOWNER BAD_STATEID DELEG_REVOKED DQUOT EXPIRED FBIG GRACE INVAL LOCKED NOSPC OLD_STATEID OPENMODE PERM ROFS UNKNOWN_LAYOUTTYPE WRONG_TYPE",
	nfs4.OpTestStateID:       "",
	nfs4.OpVerify:            "ACCESS ATTRNOTSUPP BADCHAR GRACE INVAL NOT_SAME UNKNOWN_LAYOUTTYPE WRONG_TYPE",
	nfs4.OpWrite:             "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED DQUOT EXPIRED FBIG GRACE INVAL ISDIR LOCKED NOSPC OLD_STATEID OPENMODE PNFS_IO_HOLE PNFS_NO_LAYOUT ROFS SYMLINK WRONG_TYPE",

	nfs4.OpOpenAttr:           "NOTSUPP",
	nfs4.OpGetDirDelegation:   "NOTSUPP",
	nfs4.OpGetDeviceInfo:      "NOTSUPP",
	nfs4.OpGetDeviceList:      "NOTSUPP",
	nfs4.OpLayoutCommit:       "NOTSUPP",
	nfs4.OpLayoutGet:          "NOTSUPP",
	nfs4.OpLayoutReturn:       "NOTSUPP",
	nfs4.OpOpenConfirm:        "NOTSUPP",
	nfs4.OpReleaseLockOwner:   "NOTSUPP",
	nfs4.OpRenew:              "NOTSUPP",
	nfs4.OpSetClientID:        "NOTSUPP",
	nfs4.OpSetClientIDConfirm: "NOTSUPP",
	nfs4.OpIllegal:            "OP_ILLEGAL",

	nfs4.OpAllocate:    "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED DQUOT EXPIRED FBIG GRACE INVAL ISDIR NOSPC NOTSUPP OLD_STATEID OPENMODE ROFS SYMLINK WRONG_TYPE",
	nfs4.OpClone:       "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED DQUOT EXPIRED FBIG GRACE INVAL ISDIR NOSPC NOTSUPP OLD_STATEID OPENMODE ROFS SYMLINK WRONG_TYPE XDEV",
	nfs4.OpCopy:        "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED DQUOT EXPIRED FBIG GRACE INVAL ISDIR LOCKED NOSPC OFFLOAD_DENIED OLD_STATEID OPENMODE PARTNER_NO_AUTH PARTNER_NOTSUPP PNFS_IO_HOLE PNFS_NO_LAYOUT ROFS SYMLINK WRONG_TYPE",
	nfs4.OpDeallocate:  "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED EXPIRED FBIG GRACE INVAL ISDIR NOTSUPP OLD_STATEID OPENMODE ROFS SYMLINK WRONG_TYPE",
	nfs4.OpIOAdvise:    "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED EXPIRED FBIG GRACE INVAL ISDIR NOTSUPP OLD_STATEID SYMLINK WRONG_TYPE",
	nfs4.OpReadPlus:    "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED EXPIRED GRACE INVAL ISDIR LOCKED NOTSUPP OLD_STATEID OPENMODE PARTNER_NO_AUTH PNFS_IO_HOLE PNFS_NO_LAYOUT SYMLINK WRONG_TYPE",
	nfs4.OpSeek:        "ACCESS ADMIN_REVOKED BAD_STATEID DELEG_REVOKED EXPIRED GRACE INVAL ISDIR LOCKED NOTSUPP OLD_STATEID OPENMODE PNFS_IO_HOLE PNFS_NO_LAYOUT SYMLINK UNION_NOTSUPP WRONG_TYPE",
	nfs4.OpWriteSame:   "NOTSUPP",
	nfs4.OpLayoutError: "NOTSUPP",
	nfs4.OpLayoutStats: "NOTSUPP",

	nfs4.OpGetXattr:    "ACCESS INVAL NAMETOOLONG NOTSUPP NOXATTR PERM WRONG_TYPE",
	nfs4.OpSetXattr:    "ACCESS BADCHAR DQUOT EXIST INVAL NAMETOOLONG NOSPC NOXATTR PERM ROFS WRONG_TYPE XATTR2BIG",
	nfs4.OpListXattrs:  "ACCESS INVAL NAMETOOLONG NOTSUPP NOXATTR PERM WRONG_TYPE",
	nfs4.OpRemoveXattr: "ACCESS BADCHAR DQUOT EXIST INVAL LOCKED NAMETOOLONG NOSPC NOXATTR OLD_STATEID OPENMODE PERM ROFS WRONG_TYPE",
}

// Errors of (nearly) every operation:
//
//   - BADXDR, NOFILEHANDLE, OP_NOT_IN_SESSION: TestEveryOperation;
//   - REP_TOO_BIG, REP_TOO_BIG_TO_CACHE: TestReplyTooBig;
//   - REQ_TOO_BIG, RETRY_UNCACHED_REP, TOO_MANY_OPS: SEQUENCE returns them in place of the others,
//     TestSequence;
//   - STALE: PUTFH returns it; later operations only if the object goes meanwhile;
//   - DELAY: for want of memory or descriptors, and of DESTROY_SESSION while a slot is busy;
//   - IO, SERVERFAULT: failing media;
//   - DEADSESSION: a session that ends is gone: NFS4ERR_BADSESSION;
//   - FHEXPIRED: filehandles are persistent;
//   - MOVED: there is no migration;
//   - WRONGSEC: all files have the same flavors;
//   - WRONG_CRED: there is no state protection;
//   - UNSAFE_COMPOUND: no such COMPOUND is refused.

// neverReturned has the reasons for errors that no call can provoke, by their names.
var neverReturned = map[string]string{
	"ADMIN_REVOKED":        "a client that an administrator expels loses its sessions too",
	"BACK_CHAN_BUSY":       "a session ends although callbacks are outstanding",
	"BAD_RANGE":            "ranges have 64 bits",
	"BAD_SESSION_DIGEST":   "for SSV",
	"CB_PATH_DOWN":         "a session ends although callbacks are outstanding",
	"DEADLOCK":             "LOCK never waits",
	"DELEG_ALREADY_WANTED": "wishes are not kept",
	"DQUOT":                "takes a file system with quotas",
	"EXPIRED":              "state ends together with the client's sessions",
	"FILE_OPEN":            "open files can be renamed and removed",
	"HASH_ALG_UNSUPP":      "the algorithms of encryption are refused first",
	"LOCK_NOTSUPP":         "locks can be upgraded and downgraded",
	"LOCK_RANGE":           "locks of one owner may overlap",
	"MLINK":                "takes as many links as the file system allows",
	"NOSPC":                "takes a full file system",
	"OFFLOAD_DENIED":       "a copy that cannot go on is short",
	"PARTNER_NOTSUPP":      "copies between servers are refused with NFS4ERR_NOTSUPP",
	"PARTNER_NO_AUTH":      "copies between servers are refused with NFS4ERR_NOTSUPP",
	"PNFS_IO_HOLE":         "there is no pNFS",
	"PNFS_NO_LAYOUT":       "there is no pNFS",
	"UNKNOWN_LAYOUTTYPE":   "there is no pNFS",
	"XDEV":                 "an export is one file system",
}

// otherwise has the same for single operations, or the test that provokes an error.
var otherwise = map[nfs4.Op]map[string]string{
	nfs4.OpAccess:         {"ACCESS": "ACCESS itself takes no permission"},
	nfs4.OpBackchannelCtl: {"INVAL": "for RPCSEC_GSS", "NOENT": "for RPCSEC_GSS"},
	nfs4.OpClose:          {"LOCKS_HELD": "CLOSE ends the locks"},
	nfs4.OpCreate:         {"PERM": "without privilege, NFS4ERR_ACCESS comes first"},
	nfs4.OpCreateSession:  {"NOENT": "the RFC names no case", "CLID_INUSE": "TestCreateSession"},
	nfs4.OpDelegReturn: {
		"DELEG_REVOKED": "a test of delegations", "INVAL": "the RFC names no case", "NOTSUPP": "it is supported",
		"OLD_STATEID": "the stateid of a delegation does not change",
	},
	nfs4.OpDestroySession: {
		"STALE_CLIENTID": "a session ends with its client: NFS4ERR_BADSESSION",
	},
	nfs4.OpExchangeID: {"BADCHAR": "owners are opaque"},
	nfs4.OpGetAttr:    {"ACCESS": "GETATTR takes no permission", "GRACE": "no lock excludes it", "WRONG_TYPE": "every object has attributes"},
	nfs4.OpLink:       {"GRACE": "no lock excludes it", "NOTSUPP": "takes a file system without links", "WRONG_TYPE": "every object but a directory can be linked"},
	nfs4.OpLock: {
		"ACCESS": "the open's access decides: NFS4ERR_OPENMODE", "ROFS": "the open's access decides: NFS4ERR_OPENMODE",
		"GRACE": "TestRestart", "RECLAIM_BAD": "OPEN returns it first", "RECLAIM_CONFLICT": "TestRestart",
	},
	nfs4.OpLockT:         {"ACCESS": "LOCKT takes no permission", "ROFS": "LOCKT changes nothing", "GRACE": "TestGraceOfLocks"},
	nfs4.OpLockU:         {"ACCESS": "LOCKU takes no permission"},
	nfs4.OpNVerify:       {"ACCESS": "takes no permission", "BADCHAR": "values are compared, not read", "GRACE": "no lock excludes it", "WRONG_TYPE": "every object has attributes"},
	nfs4.OpVerify:        {"ACCESS": "takes no permission", "BADCHAR": "values are compared, not read", "GRACE": "no lock excludes it", "WRONG_TYPE": "every object has attributes"},
	nfs4.OpOpen:          {"PERM": "a caller other than root cannot set the owner of a new file: it is ignored", "DELEG_REVOKED": "a test of delegations", "OLD_STATEID": "a test of delegations", "GRACE": "TestRestart", "RECLAIM_BAD": "TestRestart", "RECLAIM_CONFLICT": "TestRestart"},
	nfs4.OpOpenDowngrade: {"ROFS": "it changes no file"},
	nfs4.OpRead: {
		"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "INVAL": "each offset and count is valid",
		"OPENMODE": "a file open for writing can be read with permission: NFS4ERR_ACCESS",
	},
	nfs4.OpReadlink:        {"ACCESS": "READLINK takes no permission", "INVAL": "NFS4ERR_WRONG_TYPE since version 4.1"},
	nfs4.OpReclaimComplete: {"INVAL": "the RFC names no case", "WRONG_TYPE": "every object is of a file system"},
	nfs4.OpRemove:          {"GRACE": "no lock excludes it"},
	nfs4.OpRename:          {"GRACE": "no lock excludes it"},
	nfs4.OpSecInfoNoName:   {"INVAL": "an unknown style is NFS4ERR_BADXDR", "NOTSUPP": "it is supported"},
	nfs4.OpSequence: {
		"CONN_NOT_BOUND_TO_SESSION": "SEQUENCE binds the connection",
		"BADSESSION":                "TestSequence", "BADSLOT": "TestSequence", "BAD_HIGH_SLOT": "TestSequence",
		"SEQ_FALSE_RETRY": "TestSequence", "SEQ_MISORDERED": "TestSequence",
	},
	nfs4.OpSetAttr:  {"WRONG_TYPE": "NFS4ERR_INVAL, or NFS4ERR_ISDIR as with Linux", "BADCHAR": "owners with other characters are NFS4ERR_BADOWNER", "DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory"},
	nfs4.OpWrite:    {"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "INVAL": "an offset beyond is NFS4ERR_FBIG"},
	nfs4.OpAllocate: {"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "ISDIR": "the text wants NFS4ERR_WRONG_TYPE", "SYMLINK": "the text wants NFS4ERR_WRONG_TYPE", "NOTSUPP": "the file system's"},
	nfs4.OpClone: {
		"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "ISDIR": "the text wants NFS4ERR_WRONG_TYPE", "SYMLINK": "the text wants NFS4ERR_WRONG_TYPE",
		"NOTSUPP": "the file system's", "FBIG": "takes a file system that can clone",
	},
	nfs4.OpCopy:       {"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "ISDIR": "the text wants NFS4ERR_WRONG_TYPE", "SYMLINK": "the text wants NFS4ERR_WRONG_TYPE"},
	nfs4.OpDeallocate: {"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "ISDIR": "the text wants NFS4ERR_WRONG_TYPE", "SYMLINK": "the text wants NFS4ERR_WRONG_TYPE", "NOTSUPP": "the file system's", "FBIG": "a hole ends with the file"},
	nfs4.OpIOAdvise:   {"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "NOTSUPP": "it is supported", "INVAL": "unknown hints are ignored", "FBIG": "each range is valid"},
	nfs4.OpReadPlus:   {"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "NOTSUPP": "it is supported", "INVAL": "each offset and count is valid", "OPENMODE": "as READ"},
	nfs4.OpSeek:       {"DELEG_REVOKED": "a test of delegations", "GRACE": "locks are advisory", "NOTSUPP": "it is supported", "INVAL": "each offset is valid", "OPENMODE": "as READ"},

	nfs4.OpGetXattr:    {"NOTSUPP": "takes a file system without extended attributes", "PERM": "the file system returns NFS4ERR_ACCESS"},
	nfs4.OpSetXattr:    {"PERM": "the file system returns NFS4ERR_ACCESS", "XATTR2BIG": "TestXattrTooBig"},
	nfs4.OpListXattrs:  {"ACCESS": "names take no permission", "INVAL": "a wrong cookie is NFS4ERR_BAD_COOKIE", "NAMETOOLONG": "it has no name", "NOTSUPP": "takes a file system without extended attributes", "NOXATTR": "no attributes are an empty list", "PERM": "names take no permission"},
	nfs4.OpRemoveXattr: {"EXIST": "the RFC names no case", "LOCKED": "it has no stateid", "OLD_STATEID": "it has no stateid", "OPENMODE": "it has no stateid", "PERM": "the file system returns NFS4ERR_ACCESS"},
}

// TestErrorsCovered compares the lists of errors with the calls that provoke them.
func TestErrorsCovered(t *testing.T) {
	e := newErrorEnv(t)
	provoked := map[string]bool{}
	for _, list := range failures {
		for _, f := range list(e) {
			provoked[fmt.Sprint(f.op, " ", strings.TrimPrefix(f.want.String(), "NFS4ERR_"))] = true
		}
	}
	for op, list := range errorsOf {
		for _, name := range strings.Fields(list) {
			_, never := neverReturned[name]
			_, other := otherwise[op][name]
			key := fmt.Sprint(op, " ", name)
			switch done := provoked[key]; {
			case !done && !never && !other:
				t.Errorf("%s: not provoked", key)
			case done && other:
				t.Errorf("%s: provoked, and there is a reason why not", key)
			}
		}
	}
	for op, reasons := range otherwise {
		for name := range reasons {
			if !slices.Contains(strings.Fields(errorsOf[op]), name) {
				t.Errorf("%v has no error %s", op, name)
			}
		}
	}
}
