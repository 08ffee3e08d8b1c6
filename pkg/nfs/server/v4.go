package server

import (
	"crypto/sha256"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/oncrpc"
)

// v4Server is the part of a Server for versions 4.1 and 4.2.
type v4Server struct {
	s     *Server
	state *state.State
	// owner and scope are so_major_id and eir_server_scope: the same for all addresses of an
	// export, and after a restart.
	owner, scope []byte
	maxResponse  int
	records      *clientRecords
	journal      *sessionJournal                 // nil: no session is persistent
	operations   [nfs4.Operations]operationCount // the first has unknown operations
	callbacks    callbacks
	parking      parking
	unshared     bool
	idDomain     string
	// foreignWaiters is the number of notices about locks of local processes that wait.
	foreignWaiters atomic.Int64
	leases         chan struct{} // closed by watchLeases
	stop, done     chan struct{}
}

// NFS4Config configures versions 4.1 and 4.2. Zero values mean the defaults of [state.Config], and
// for Opens and Locks a quarter of RLIMIT_NOFILE, at most 65536, for Delegations half as many.
type NFS4Config struct {
	// Lease is the time after which a silent client may lose its state. Grace is the time after a
	// start in which clients reclaim theirs.
	Lease, Grace time.Duration
	// Clients, Opens, Locks and Delegations bound the memory of state. Negative Delegations: none.
	Clients, Opens, Locks, Delegations int
	// Unshared: nobody but this server changes the directory. Then delegations are for writing too.
	// Otherwise they are for reading alone, and each takes a lease of the kernel (fcntl(2)), with a
	// descriptor.
	Unshared bool
	// RecordsInRoot keeps the records of clients in a directory of Config.Root that clients cannot
	// see, instead of Config.StateDir: so a server on another host goes on.
	RecordsInRoot bool
	// PersistentSessions grants CREATE_SESSION4_FLAG_PERSIST: beside the records of clients, the
	// server keeps calls that must not run twice, and their replies, on stable storage.
	PersistentSessions bool
	// IDDomain is the domain of owners' names: users and groups of this host are NAME@IDDomain.
	// Empty: owners are numbers.
	IDDomain string
}

func (c *NFS4Config) defaults() {
	if c.Opens == 0 {
		c.Opens = descriptorShare()
	}
	if c.Locks == 0 {
		c.Locks = descriptorShare()
	}
	if c.Delegations == 0 {
		c.Delegations = descriptorShare() / 2
	}
}

// SetNFS4Limits replaces Clients, Opens, Locks and Delegations. State beyond a lower limit stays.
func (s *Server) SetNFS4Limits(cfg *NFS4Config) {
	limits := *cfg
	limits.defaults()
	s.v4.state.SetLimits(limits.Clients, limits.Opens, limits.Locks, limits.Delegations)
}

func newV4Server(s *Server) *v4Server {
	v := &v4Server{s: s, stop: make(chan struct{}), done: make(chan struct{})}
	sum := sha256.Sum256(append([]byte("sluice server owner\x00"), s.fs.Root().Handle().Bytes()...))
	v.owner, v.scope = sum[:16], sum[16:]
	now := time.Now()
	var owners [][]byte
	v.records, owners = openClientRecords(s)
	v.journal = openV4Journal(s)
	cfg := *s.cfg.NFS4
	cfg.defaults()
	v.unshared, v.idDomain, v.leases = cfg.Unshared, cfg.IDDomain, make(chan struct{})
	v.parking.calls = map[state.FileID][]*parkedCall{}
	v.state = state.New(state.Config{
		Boot: uint32(now.UnixMilli() >> 4), Lease: cfg.Lease, Grace: cfg.Grace,
		MaxClients: cfg.Clients, MaxOpens: cfg.Opens, MaxLocks: cfg.Locks,
		MaxDelegations: cfg.Delegations, Gone: gone,
	}, owners, now)
	v.callbacks.init(v)
	v.maxResponse = v.state.Config().MaxResponse
	go v.run()
	go v.watchLeases()
	return v
}

// gone reports whether a connection has ended.
func gone(conn any) bool {
	select {
	case <-conn.(*oncrpc.Conn).Done:
		return true
	default:
		return false
	}
}

// descriptorShare is the default limit of opens, and of locks: each has a descriptor, and so have
// the objects in memory, which may take as many (see vfs.Options.MaxFiles).
func descriptorShare() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 256
	}
	return int(max(64, min(65536, r.Cur/4)))
}

// run ends expired state.
func (v *v4Server) run() {
	defer close(v.done)
	t := time.NewTicker(v.state.Config().Lease / 4)
	defer t.Stop()
	for {
		select {
		case <-v.stop:
			return
		case now := <-t.C:
			v.state.Tick(now)
			v.records.remove(v.state.Unclaimed(now))
			v.settle()
			v.callbacks.forget()
		}
	}
}

func (v *v4Server) close() {
	close(v.stop)
	<-v.done
	<-v.leases
	v.closeParking()
	v.callbacks.close()
	v.state.End()
	v.settle()
	if v.journal != nil {
		_ = v.journal.close()
	}
}

// settle closes the resources of ended state, removes the records of ended clients, sends recalls,
// and resumes calls that waited for delegations.
func (v *v4Server) settle() {
	if !v.state.Ended() {
		return
	}
	resources, owners := v.state.Released()
	v.records.remove(owners)
	for _, r := range resources {
		r.(interface{ Close() }).Close()
	}
	for _, d := range v.state.Recalls() {
		v.recall(d)
	}
	for _, f := range v.state.Returned() {
		v.unparkAll(f)
	}
	for _, n := range v.state.LockNotices() {
		v.notify(n)
	}
	for _, n := range v.state.Squeezed() {
		v.recallSlots(n)
	}
	v.relieve()
}

// operations4 is set by init, since its functions refer to it.
var operations4 [nfs4.Operations]operation

func init() {
	operations4 = [nfs4.Operations]operation{
		nfs4.OpSequence:          {run: (*compound).sequence, sessionless: true},
		nfs4.OpExchangeID:        {run: (*compound).exchangeID, sessionless: true},
		nfs4.OpCreateSession:     {run: (*compound).createSession, sessionless: true},
		nfs4.OpDestroySession:    {run: (*compound).destroySession, sessionless: true},
		nfs4.OpDestroyClientID:   {run: (*compound).destroyClientID, sessionless: true},
		nfs4.OpBindConnToSession: {run: (*compound).bindConnToSession, sessionless: true},
		nfs4.OpBackchannelCtl:    {run: (*compound).backchannelCtl},
		nfs4.OpSetSSV:            {run: (*compound).setSSV},
		nfs4.OpReclaimComplete:   {run: (*compound).reclaimComplete},
		nfs4.OpTestStateID:       {run: (*compound).testStateID},
		nfs4.OpFreeStateID:       {run: (*compound).freeStateID},

		nfs4.OpPutFH:     {run: (*compound).putFH, query: true},
		nfs4.OpPutRootFH: {run: (*compound).putRootFH, query: true},
		nfs4.OpPutPubFH:  {run: (*compound).putRootFH, query: true},
		nfs4.OpGetFH:     {run: (*compound).getFH, fh: true, query: true},
		nfs4.OpSaveFH:    {run: (*compound).saveFH, fh: true, query: true},
		nfs4.OpRestoreFH: {run: (*compound).restoreFH, query: true},

		nfs4.OpGetAttr:       {run: (*compound).getAttr, fh: true, query: true},
		nfs4.OpSetAttr:       {run: (*compound).setAttr, fh: true, changes: true},
		nfs4.OpVerify:        {run: (*compound).verify, fh: true, query: true},
		nfs4.OpNVerify:       {run: (*compound).nVerify, fh: true, query: true},
		nfs4.OpAccess:        {run: (*compound).access, fh: true, query: true},
		nfs4.OpLookup:        {run: (*compound).lookup, fh: true, query: true},
		nfs4.OpLookupP:       {run: (*compound).lookupP, fh: true, query: true},
		nfs4.OpCreate:        {run: (*compound).create, fh: true, changes: true},
		nfs4.OpRemove:        {run: (*compound).remove, fh: true, changes: true},
		nfs4.OpRename:        {run: (*compound).rename, fh: true, savedFH: true, changes: true},
		nfs4.OpLink:          {run: (*compound).link, fh: true, savedFH: true, changes: true},
		nfs4.OpReadlink:      {run: (*compound).readlink, fh: true, query: true},
		nfs4.OpSecInfo:       {run: (*compound).secInfo, fh: true},
		nfs4.OpSecInfoNoName: {run: (*compound).secInfoNoName, fh: true},
		nfs4.OpReaddir:       {run: (*compound).readdir, fh: true},
		nfs4.OpRead:          {run: (*compound).read, fh: true},
		nfs4.OpWrite:         {run: (*compound).write, fh: true, changes: true},
		nfs4.OpCommit:        {run: (*compound).commit, fh: true, changes: true},

		nfs4.OpOpen:          {run: (*compound).open, fh: true},
		nfs4.OpDelegReturn:   {run: (*compound).delegReturn, fh: true},
		nfs4.OpOpenDowngrade: {run: (*compound).openDowngrade, fh: true},
		nfs4.OpClose:         {run: (*compound).close, fh: true},
		nfs4.OpLock:          {run: (*compound).lock, fh: true},
		nfs4.OpLockT:         {run: (*compound).lockT, fh: true},
		nfs4.OpLockU:         {run: (*compound).lockU, fh: true},

		nfs4.OpAllocate:      {run: (*compound).allocate, fh: true, changes: true},
		nfs4.OpDeallocate:    {run: (*compound).deallocate, fh: true, changes: true},
		nfs4.OpSeek:          {run: (*compound).seek, fh: true},
		nfs4.OpReadPlus:      {run: (*compound).readPlus, fh: true},
		nfs4.OpIOAdvise:      {run: (*compound).ioAdvise, fh: true},
		nfs4.OpOffloadStatus: {run: (*compound).offloadStatus, fh: true},
		nfs4.OpOffloadCancel: {run: (*compound).offloadCancel, fh: true},
		nfs4.OpCopy:          {run: (*compound).copy, fh: true, savedFH: true, changes: true},
		nfs4.OpClone:         {run: (*compound).clone, fh: true, savedFH: true, changes: true},
		nfs4.OpGetXattr:      {run: (*compound).getXattr, fh: true, query: true},
		nfs4.OpSetXattr:      {run: (*compound).setXattr, fh: true, changes: true},
		nfs4.OpListXattrs:    {run: (*compound).listXattrs, fh: true, query: true},
		nfs4.OpRemoveXattr:   {run: (*compound).removeXattr, fh: true, changes: true},
	}
}
