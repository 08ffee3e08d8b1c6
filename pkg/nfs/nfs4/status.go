package nfs4

import (
	"errors"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
)

// Status is an nfsstat4 (RFC 8881 section 15, RFC 7862 section 11, RFC 8276 section 8.5). It is an
// error too; errors.Is matches fs.ErrNotExist and the like, and the errno with the same meaning.
type Status uint32

// Status codes.
const (
	OK                       Status = 0
	ErrPerm                  Status = 1
	ErrNoEnt                 Status = 2
	ErrIO                    Status = 5
	ErrNXIO                  Status = 6
	ErrAccess                Status = 13
	ErrExist                 Status = 17
	ErrXDev                  Status = 18
	ErrNotDir                Status = 20
	ErrIsDir                 Status = 21
	ErrInval                 Status = 22
	ErrFBig                  Status = 27
	ErrNoSpc                 Status = 28
	ErrROFS                  Status = 30
	ErrMLink                 Status = 31
	ErrNameTooLong           Status = 63
	ErrNotEmpty              Status = 66
	ErrDQuot                 Status = 69
	ErrStale                 Status = 70
	ErrBadHandle             Status = 10001
	ErrBadCookie             Status = 10003
	ErrNotSupp               Status = 10004
	ErrTooSmall              Status = 10005
	ErrServerFault           Status = 10006
	ErrBadType               Status = 10007
	ErrDelay                 Status = 10008
	ErrSame                  Status = 10009
	ErrDenied                Status = 10010
	ErrExpired               Status = 10011
	ErrLocked                Status = 10012
	ErrGrace                 Status = 10013
	ErrFHExpired             Status = 10014
	ErrShareDenied           Status = 10015
	ErrWrongSec              Status = 10016
	ErrClientIDInUse         Status = 10017
	ErrResource              Status = 10018
	ErrMoved                 Status = 10019
	ErrNoFileHandle          Status = 10020
	ErrMinorVersMismatch     Status = 10021
	ErrStaleClientID         Status = 10022
	ErrStaleStateID          Status = 10023
	ErrOldStateID            Status = 10024
	ErrBadStateID            Status = 10025
	ErrBadSeqID              Status = 10026
	ErrNotSame               Status = 10027
	ErrLockRange             Status = 10028
	ErrSymlink               Status = 10029
	ErrRestoreFH             Status = 10030
	ErrLeaseMoved            Status = 10031
	ErrAttrNotSupp           Status = 10032
	ErrNoGrace               Status = 10033
	ErrReclaimBad            Status = 10034
	ErrReclaimConflict       Status = 10035
	ErrBadXDR                Status = 10036
	ErrLocksHeld             Status = 10037
	ErrOpenMode              Status = 10038
	ErrBadOwner              Status = 10039
	ErrBadChar               Status = 10040
	ErrBadName               Status = 10041
	ErrBadRange              Status = 10042
	ErrLockNotSupp           Status = 10043
	ErrOpIllegal             Status = 10044
	ErrDeadlock              Status = 10045
	ErrFileOpen              Status = 10046
	ErrAdminRevoked          Status = 10047
	ErrCBPathDown            Status = 10048
	ErrBadIOMode             Status = 10049
	ErrBadLayout             Status = 10050
	ErrBadSessionDigest      Status = 10051
	ErrBadSession            Status = 10052
	ErrBadSlot               Status = 10053
	ErrCompleteAlready       Status = 10054
	ErrConnNotBoundToSession Status = 10055
	ErrDelegAlreadyWanted    Status = 10056
	ErrBackChanBusy          Status = 10057
	ErrLayoutTryLater        Status = 10058
	ErrLayoutUnavailable     Status = 10059
	ErrNoMatchingLayout      Status = 10060
	ErrRecallConflict        Status = 10061
	ErrUnknownLayoutType     Status = 10062
	ErrSeqMisordered         Status = 10063
	ErrSequencePos           Status = 10064
	ErrReqTooBig             Status = 10065
	ErrRepTooBig             Status = 10066
	ErrRepTooBigToCache      Status = 10067
	ErrRetryUncachedRep      Status = 10068
	ErrUnsafeCompound        Status = 10069
	ErrTooManyOps            Status = 10070
	ErrOpNotInSession        Status = 10071
	ErrHashAlgUnsupp         Status = 10072
	ErrClientIDBusy          Status = 10074
	ErrPnfsIoHole            Status = 10075
	ErrSeqFalseRetry         Status = 10076
	ErrBadHighSlot           Status = 10077
	ErrDeadsession           Status = 10078
	ErrEncrAlgUnsupp         Status = 10079
	ErrPnfsNoLayout          Status = 10080
	ErrNotOnlyOp             Status = 10081
	ErrWrongCred             Status = 10082
	ErrWrongType             Status = 10083
	ErrDirDelegUnavail       Status = 10084
	ErrRejectDeleg           Status = 10085
	ErrReturnconflict        Status = 10086
	ErrDelegRevoked          Status = 10087
	ErrPartnerNotsupp        Status = 10088
	ErrPartnerNoAuth         Status = 10089
	ErrUnionNotSupp          Status = 10090
	ErrOffloadDenied         Status = 10091
	ErrWrongLFS              Status = 10092
	ErrBadLabel              Status = 10093
	ErrOffloadNoReqs         Status = 10094
	ErrNoXattr               Status = 10095
	ErrXattr2Big             Status = 10096
)

// statuses have the names in the RFCs. Those without an errno are protocol errors, which users see
// by name alone.
var statuses = map[Status]struct {
	name, text string
	errno      unix.Errno
}{
	OK:                       {"NFS4_OK", "no error", 0},
	ErrPerm:                  {"NFS4ERR_PERM", "not the owner", unix.EPERM},
	ErrNoEnt:                 {"NFS4ERR_NOENT", "no such file or directory", unix.ENOENT},
	ErrIO:                    {"NFS4ERR_IO", "input/output error", unix.EIO},
	ErrNXIO:                  {"NFS4ERR_NXIO", "no such device or address", unix.ENXIO},
	ErrAccess:                {"NFS4ERR_ACCESS", "permission denied", unix.EACCES},
	ErrExist:                 {"NFS4ERR_EXIST", "file exists", unix.EEXIST},
	ErrXDev:                  {"NFS4ERR_XDEV", "hard link across devices", unix.EXDEV},
	ErrNotDir:                {"NFS4ERR_NOTDIR", "not a directory", unix.ENOTDIR},
	ErrIsDir:                 {"NFS4ERR_ISDIR", "is a directory", unix.EISDIR},
	ErrInval:                 {"NFS4ERR_INVAL", "invalid argument", unix.EINVAL},
	ErrFBig:                  {"NFS4ERR_FBIG", "file too large", unix.EFBIG},
	ErrNoSpc:                 {"NFS4ERR_NOSPC", "no space left", unix.ENOSPC},
	ErrROFS:                  {"NFS4ERR_ROFS", "read-only file system", unix.EROFS},
	ErrMLink:                 {"NFS4ERR_MLINK", "too many hard links", unix.EMLINK},
	ErrNameTooLong:           {"NFS4ERR_NAMETOOLONG", "name too long", unix.ENAMETOOLONG},
	ErrNotEmpty:              {"NFS4ERR_NOTEMPTY", "directory not empty", unix.ENOTEMPTY},
	ErrDQuot:                 {"NFS4ERR_DQUOT", "quota exceeded", unix.EDQUOT},
	ErrStale:                 {"NFS4ERR_STALE", "stale file handle", unix.ESTALE},
	ErrBadHandle:             {"NFS4ERR_BADHANDLE", "bad file handle", unix.ESTALE},
	ErrBadCookie:             {name: "NFS4ERR_BAD_COOKIE"},
	ErrNotSupp:               {"NFS4ERR_NOTSUPP", "operation not supported", unix.EOPNOTSUPP},
	ErrTooSmall:              {name: "NFS4ERR_TOOSMALL"},
	ErrServerFault:           {"NFS4ERR_SERVERFAULT", "server fault", unix.EIO},
	ErrBadType:               {name: "NFS4ERR_BADTYPE"},
	ErrDelay:                 {"NFS4ERR_DELAY", "the server needs more time, try again", unix.EAGAIN},
	ErrSame:                  {name: "NFS4ERR_SAME"},
	ErrDenied:                {"NFS4ERR_DENIED", "a lock conflicts", unix.EAGAIN},
	ErrExpired:               {name: "NFS4ERR_EXPIRED"},
	ErrLocked:                {"NFS4ERR_LOCKED", "locked by another", unix.EAGAIN},
	ErrGrace:                 {name: "NFS4ERR_GRACE"},
	ErrFHExpired:             {name: "NFS4ERR_FHEXPIRED"},
	ErrShareDenied:           {name: "NFS4ERR_SHARE_DENIED"},
	ErrWrongSec:              {name: "NFS4ERR_WRONGSEC"},
	ErrClientIDInUse:         {name: "NFS4ERR_CLID_INUSE"},
	ErrResource:              {name: "NFS4ERR_RESOURCE"},
	ErrMoved:                 {name: "NFS4ERR_MOVED"},
	ErrNoFileHandle:          {name: "NFS4ERR_NOFILEHANDLE"},
	ErrMinorVersMismatch:     {name: "NFS4ERR_MINOR_VERS_MISMATCH"},
	ErrStaleClientID:         {name: "NFS4ERR_STALE_CLIENTID"},
	ErrStaleStateID:          {name: "NFS4ERR_STALE_STATEID"},
	ErrOldStateID:            {name: "NFS4ERR_OLD_STATEID"},
	ErrBadStateID:            {name: "NFS4ERR_BAD_STATEID"},
	ErrBadSeqID:              {name: "NFS4ERR_BAD_SEQID"},
	ErrNotSame:               {name: "NFS4ERR_NOT_SAME"},
	ErrLockRange:             {name: "NFS4ERR_LOCK_RANGE"},
	ErrSymlink:               {"NFS4ERR_SYMLINK", "is a symbolic link", unix.ELOOP},
	ErrRestoreFH:             {name: "NFS4ERR_RESTOREFH"},
	ErrLeaseMoved:            {name: "NFS4ERR_LEASE_MOVED"},
	ErrAttrNotSupp:           {"NFS4ERR_ATTRNOTSUPP", "attribute not supported", unix.EINVAL},
	ErrNoGrace:               {name: "NFS4ERR_NO_GRACE"},
	ErrReclaimBad:            {name: "NFS4ERR_RECLAIM_BAD"},
	ErrReclaimConflict:       {name: "NFS4ERR_RECLAIM_CONFLICT"},
	ErrBadXDR:                {name: "NFS4ERR_BADXDR"},
	ErrLocksHeld:             {name: "NFS4ERR_LOCKS_HELD"},
	ErrOpenMode:              {name: "NFS4ERR_OPENMODE"},
	ErrBadOwner:              {"NFS4ERR_BADOWNER", "unknown owner", unix.EINVAL},
	ErrBadChar:               {name: "NFS4ERR_BADCHAR"},
	ErrBadName:               {name: "NFS4ERR_BADNAME"},
	ErrBadRange:              {name: "NFS4ERR_BAD_RANGE"},
	ErrLockNotSupp:           {name: "NFS4ERR_LOCK_NOTSUPP"},
	ErrOpIllegal:             {name: "NFS4ERR_OP_ILLEGAL"},
	ErrDeadlock:              {"NFS4ERR_DEADLOCK", "deadlock", unix.EDEADLK},
	ErrFileOpen:              {"NFS4ERR_FILE_OPEN", "the file is open", unix.EBUSY},
	ErrAdminRevoked:          {name: "NFS4ERR_ADMIN_REVOKED"},
	ErrCBPathDown:            {name: "NFS4ERR_CB_PATH_DOWN"},
	ErrBadIOMode:             {name: "NFS4ERR_BADIOMODE"},
	ErrBadLayout:             {name: "NFS4ERR_BADLAYOUT"},
	ErrBadSessionDigest:      {name: "NFS4ERR_BAD_SESSION_DIGEST"},
	ErrBadSession:            {name: "NFS4ERR_BADSESSION"},
	ErrBadSlot:               {name: "NFS4ERR_BADSLOT"},
	ErrCompleteAlready:       {name: "NFS4ERR_COMPLETE_ALREADY"},
	ErrConnNotBoundToSession: {name: "NFS4ERR_CONN_NOT_BOUND_TO_SESSION"},
	ErrDelegAlreadyWanted:    {name: "NFS4ERR_DELEG_ALREADY_WANTED"},
	ErrBackChanBusy:          {name: "NFS4ERR_BACK_CHAN_BUSY"},
	ErrLayoutTryLater:        {name: "NFS4ERR_LAYOUTTRYLATER"},
	ErrLayoutUnavailable:     {name: "NFS4ERR_LAYOUTUNAVAILABLE"},
	ErrNoMatchingLayout:      {name: "NFS4ERR_NOMATCHING_LAYOUT"},
	ErrRecallConflict:        {name: "NFS4ERR_RECALLCONFLICT"},
	ErrUnknownLayoutType:     {name: "NFS4ERR_UNKNOWN_LAYOUTTYPE"},
	ErrSeqMisordered:         {name: "NFS4ERR_SEQ_MISORDERED"},
	ErrSequencePos:           {name: "NFS4ERR_SEQUENCE_POS"},
	ErrReqTooBig:             {name: "NFS4ERR_REQ_TOO_BIG"},
	ErrRepTooBig:             {name: "NFS4ERR_REP_TOO_BIG"},
	ErrRepTooBigToCache:      {name: "NFS4ERR_REP_TOO_BIG_TO_CACHE"},
	ErrRetryUncachedRep:      {name: "NFS4ERR_RETRY_UNCACHED_REP"},
	ErrUnsafeCompound:        {name: "NFS4ERR_UNSAFE_COMPOUND"},
	ErrTooManyOps:            {name: "NFS4ERR_TOO_MANY_OPS"},
	ErrOpNotInSession:        {name: "NFS4ERR_OP_NOT_IN_SESSION"},
	ErrHashAlgUnsupp:         {name: "NFS4ERR_HASH_ALG_UNSUPP"},
	ErrClientIDBusy:          {name: "NFS4ERR_CLIENTID_BUSY"},
	ErrPnfsIoHole:            {name: "NFS4ERR_PNFS_IO_HOLE"},
	ErrSeqFalseRetry:         {name: "NFS4ERR_SEQ_FALSE_RETRY"},
	ErrBadHighSlot:           {name: "NFS4ERR_BAD_HIGH_SLOT"},
	ErrDeadsession:           {name: "NFS4ERR_DEADSESSION"},
	ErrEncrAlgUnsupp:         {name: "NFS4ERR_ENCR_ALG_UNSUPP"},
	ErrPnfsNoLayout:          {name: "NFS4ERR_PNFS_NO_LAYOUT"},
	ErrNotOnlyOp:             {name: "NFS4ERR_NOT_ONLY_OP"},
	ErrWrongCred:             {name: "NFS4ERR_WRONG_CRED"},
	ErrWrongType:             {name: "NFS4ERR_WRONG_TYPE"},
	ErrDirDelegUnavail:       {name: "NFS4ERR_DIRDELEG_UNAVAIL"},
	ErrRejectDeleg:           {name: "NFS4ERR_REJECT_DELEG"},
	ErrReturnconflict:        {name: "NFS4ERR_RETURNCONFLICT"},
	ErrDelegRevoked:          {name: "NFS4ERR_DELEG_REVOKED"},
	ErrPartnerNotsupp:        {name: "NFS4ERR_PARTNER_NOTSUPP"},
	ErrPartnerNoAuth:         {name: "NFS4ERR_PARTNER_NO_AUTH"},
	ErrUnionNotSupp:          {name: "NFS4ERR_UNION_NOTSUPP"},
	ErrOffloadDenied:         {name: "NFS4ERR_OFFLOAD_DENIED"},
	ErrWrongLFS:              {name: "NFS4ERR_WRONG_LFS"},
	ErrBadLabel:              {name: "NFS4ERR_BADLABEL"},
	ErrOffloadNoReqs:         {name: "NFS4ERR_OFFLOAD_NO_REQS"},
	ErrNoXattr:               {"NFS4ERR_NOXATTR", "no such extended attribute", unix.ENODATA},
	ErrXattr2Big:             {"NFS4ERR_XATTR2BIG", "extended attribute too large", unix.E2BIG},
}

// String returns the name in the RFC, like "NFS4ERR_NOENT".
func (s Status) String() string {
	if v, ok := statuses[s]; ok {
		return v.name
	}
	return "nfsstat4(" + strconv.FormatUint(uint64(s), 10) + ")"
}

// Error returns the status's meaning, if users know it, and name: "no such file or directory
// (NFS4ERR_NOENT)".
func (s Status) Error() string {
	switch v, ok := statuses[s]; {
	case !ok:
		return "unknown status " + s.String()
	case v.text == "":
		return v.name
	default:
		return v.text + " (" + v.name + ")"
	}
}

// Err returns s as an error, nil for OK.
func (s Status) Err() error {
	if s == OK {
		return nil
	}
	return s
}

// Is lets errors.Is find fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, and errnos.
func (s Status) Is(target error) bool {
	errno := statuses[s].errno
	return errno != 0 && (errno == target || errno.Is(target))
}

// StatusOf returns the status for the error of a system call: the one with the errno's meaning, or
// ErrIO. It returns a Status inside err unchanged, and OK for nil.
func StatusOf(err error) Status {
	if err == nil {
		return OK
	}
	var s Status
	if errors.As(err, &s) {
		return s
	}
	var errno unix.Errno
	if errors.As(err, &errno) && int(errno) < len(byErrno) {
		return byErrno[errno]
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoEnt
	case errors.Is(err, fs.ErrExist):
		return ErrExist
	case errors.Is(err, fs.ErrPermission):
		return ErrAccess
	}
	return ErrIO
}

// byErrno has the statuses of errnos.
var byErrno = func() (t [256]Status) {
	for i := range t {
		t[i] = ErrIO
	}
	t[0] = OK
	for errno, s := range map[unix.Errno]Status{
		unix.EPERM: ErrPerm, unix.ENOENT: ErrNoEnt, unix.ENXIO: ErrNXIO, unix.ENODEV: ErrNXIO, unix.EACCES: ErrAccess,
		unix.EEXIST: ErrExist, unix.EXDEV: ErrXDev, unix.ENOTDIR: ErrNotDir, unix.EISDIR: ErrIsDir,
		unix.EINVAL: ErrInval, unix.EFBIG: ErrFBig, unix.ENOSPC: ErrNoSpc, unix.EROFS: ErrROFS,
		unix.EMLINK: ErrMLink, unix.ENAMETOOLONG: ErrNameTooLong, unix.ENOTEMPTY: ErrNotEmpty,
		unix.EDQUOT: ErrDQuot, unix.ESTALE: ErrStale, unix.EOPNOTSUPP: ErrNotSupp, unix.ENOSYS: ErrNotSupp,
		unix.ELOOP: ErrSymlink, unix.EDEADLK: ErrDeadlock, unix.ENODATA: ErrNoXattr, unix.E2BIG: ErrXattr2Big,
		unix.EOVERFLOW: ErrInval, unix.ETXTBSY: ErrAccess, unix.EBUSY: ErrAccess,
		// the client waits and retries
		unix.EAGAIN: ErrDelay, unix.ENOMEM: ErrDelay, unix.EMFILE: ErrDelay, unix.ENFILE: ErrDelay, unix.ENOLCK: ErrDelay,
	} {
		t[errno] = s
	}
	return t
}()
