// Package upstream is the connections of the NFS proxy to its backend, an NFS server.
//
// A [Backend] is what one export's calls go to. A [Link] belongs to one connection of a client and has one connection to the backend, so that what the
// server keeps for a connection (sessions, the back channel, the reply cache) stays the client's own. Requests pass through with the XIDs that the clients chose.
//
// A request never fails because the backend restarts. While there is no connection it waits, and the backend is dialled again, with growing pauses, from the
// source port that the link had before: servers of NFSv3 and 4.0 tell by XID, address and port whether they have executed a call already. What is
// unanswered is then sent again in the order in which it came. What waits is bounded ([Config].WaitLimit); beyond that the client keeps its calls itself ([ErrOverloaded]).
// Clients that would rather hear that the backend is slow have the soft timeout.
//
// When a client goes, its connection is parked for it, if the backend knows the client's calls by XID (NFSv3 and 4.0). The first link from the same address
// gets it, and the calls that the client then sends again find what became of them. From NFSv4.1 on the session does all that, and the connection ends.
//
// # Source ports
//
// Many servers serve only clients that call from a port below 1024. A process that may use these (root, or CAP_NET_BIND_SERVICE) takes one of 665 to 1023 for each
// link: 359 connections from one pod to one address and port of a server, parked ones and those of the gateway's own calls included. nconnect multiplies what
// a client takes. When none is left, or the process may not use them, connections come from any port; that is logged once and counted, and a server that insists refuses them.
package upstream
