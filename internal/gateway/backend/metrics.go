package backend

import "sluice.dev/sluice/internal/gateway/metric"

// Metrics of volumes.
var (
	replaysDesc = metric.Desc("reply_cache_replays_total", "Retransmitted calls answered from the duplicate request cache.")
	queuedDesc  = metric.Desc("backend_queued_calls", "Calls waiting for a worker.")
)

// Metrics of versions 4.1 and 4.2 of volumes.
var (
	nfs4OperationsDesc  = metric.Desc("nfs4_operations_total", "Operations of NFSv4 COMPOUNDs on a volume, by result: ok or error.", "operation", "result")
	nfs4LatencyDesc     = metric.Desc("nfs4_operation_duration_seconds", "Seconds that operations of NFSv4 COMPOUNDs on a volume took.", "operation")
	nfs4ClientsDesc     = metric.Desc("nfs4_clients", "NFSv4 clients of a volume: active, expired (with state that nobody has needed), and limit.", "state")
	nfs4SessionsDesc    = metric.Desc("nfs4_sessions", "NFSv4 sessions of a volume.")
	nfs4OpensDesc       = metric.Desc("nfs4_opens", "NFSv4 opens of a volume: held, and limit.", "state")
	nfs4LocksDesc       = metric.Desc("nfs4_locks", "Ranges locked by NFSv4 clients of a volume: held, and limit.", "state")
	nfs4DelegationsDesc = metric.Desc("nfs4_delegations", "NFSv4 delegations of a volume: held, revoked (not freed by their clients yet), and limit.", "state")
	nfs4ExpiriesDesc    = metric.Desc("nfs4_lease_expiries_total", "NFSv4 clients of a volume that ended because their lease had expired.")
	nfs4GraceDesc       = metric.Desc("nfs4_grace", "1 while NFSv4 clients of a volume reclaim state from before a start, otherwise 0.")
)

// Metrics of remote backends.
var (
	connectionsDesc   = metric.Desc("backend_connections", "Current connections to the backend server.")
	detachedDesc      = metric.Desc("backend_detached_connections", "Connections to the backend kept for clients that disconnected and may return.")
	callsDesc         = metric.Desc("backend_calls", "Calls that the backend has not answered yet.")
	waitingBytesDesc  = metric.Desc("backend_waiting_bytes", "Bytes of calls waiting for a connection to the backend.")
	orphanedBytesDesc = metric.Desc("backend_orphaned_bytes", "Bytes of unanswered calls whose client has disconnected.")
	portsDesc         = metric.Desc("backend_source_ports", "Source ports below 1024 in use for connections to the backend.")
	dialsDesc         = metric.Desc("backend_dials_total", "Attempts to connect to the backend, by result: ok or error.", "result")
	resendsDesc       = metric.Desc("backend_resends_total", "Calls sent to the backend again after a connection was lost.")
	overloadsDesc     = metric.Desc("backend_overloads_total", "Calls whose client was disconnected because too many bytes waited for the backend.")
	delayedDesc       = metric.Desc("backend_delayed_calls_total", "Calls answered with a delay error because the backend exceeded softTimeout.")
	callbacksDesc     = metric.Desc("backend_callbacks_total", "Calls of the backend forwarded to clients.")
	unreadableDesc    = metric.Desc("backend_unreadable_messages_total", "Unreadable messages from the backend, or for it.")
)
