// Package upstream connects the NFS proxy to its backend, an NFS server.
//
// A [Backend] serves one export. A [Link] belongs to one client connection and has one backend
// connection of its own, so that the state which the server keeps per connection (sessions, back
// channel, reply cache) belongs to that client. Requests keep the XIDs that the client chose.
//
// A request never fails because the backend restarts. Without a connection it waits, while the
// backend is dialled with growing delays from the link's source port: servers of NFSv3 and 4.0
// detect replays by XID, address and port. Unanswered calls are then sent again in their order.
// [Config].WaitLimit bounds the waiting calls; beyond it the client keeps its calls
// ([ErrOverloaded]). A soft timeout answers clients that prefer an early error.
//
// When a client disconnects and the backend detects its replays by XID (NFSv3 and 4.0), the backend
// connection is detached and kept. The next link from the same address gets it, so that calls the
// client sends again find their original replies. From NFSv4.1 on, the session serves that purpose,
// and the connection is closed.
//
// # Source ports
//
// Many servers accept only clients with a source port below 1024. A process that may use these
// (root, or CAP_NET_BIND_SERVICE) takes one of 665 to 1023 for each link: 359 connections from one
// pod to one address and port of a server, including detached ones and the gateway's own. nconnect
// multiplies a client's share. When none is free, or the process may not use them, connections come
// from any port. That is logged once and counted; strict servers refuse them.
package upstream
