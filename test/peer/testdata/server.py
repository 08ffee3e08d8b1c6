#!/usr/bin/env python3
"""A server of RPC-over-RDMA version 1 that shares no code with Sluice: see peer.py.

It answers a requester in forms that Linux's server does not use, and checks every byte that comes.

    server.py CASE

It prints its address, serves one connection by the case, and prints "ok" or "failed REASON".
requester_test.go makes the calls.
"""
import socket
import struct
import sys
import traceback

from peer import (DONE, ERROR, MSG, MSGP, NOMSG, PRIVATE, Endpoint, Message, Reader, expect, lists, opaque, pattern,
                  u32, u64)

CREDITS = 8


def call_header(xid, program, version, procedure):
    return u32(xid, 0, 2, program, version, procedure, 0, 0, 0, 0)


def accepted(xid):
    """The header of a successful reply."""
    return u32(xid, 1, 0, 0, 0, 0)


class Data(bytes):
    """Data that may have a chunk."""


def unreduced(parts):
    return b"".join(opaque(p) if isinstance(p, Data) else p for p in parts)


class Server(Endpoint):
    peer = "requester"

    def __init__(self, sock, private):
        super().__init__(sock)
        flags, theirs = self.take_mpa(b"MPA ID Req Frame")
        expect("enhanced data", flags & 0x10, 0x10)
        expect("private data", theirs[4:8], PRIVATE[:4])
        self.send_mpa(b"MPA ID Rep Frame", private)

    def message(self):
        return Message(self.receive())

    def call(self, program, version, procedure, parts, chunked=(), writes=(), reply=None, long=False, padding=None):
        """Takes a call, and checks each byte of it. chunked are the parts with a Read chunk, writes the
        lengths of the Write chunks, reply that of the Reply chunk, True for any. long: it has no inline
        part."""
        m = self.message()
        parts = [call_header(m.xid, program, version, procedure)] + list(parts)
        expect("procedure", m.proc, NOMSG if long else MSG if padding is None else MSGP)
        inline, position, want = b"", 0, []
        for p in parts:
            if not isinstance(p, Data):
                inline += p
                position += len(p)
                continue
            inline += u32(len(p))
            position += 4
            if p in chunked:
                want.append((position, bytes(p)))
            elif padding is not None and len(p) >= padding[1]:
                inline += bytes(-(36 + len(inline)) % padding[0]) + opaque(p)[4:]
            else:
                inline += opaque(p)[4:]
            position += len(opaque(p)) - 4
        expect("rdma_align and rdma_thresh", m.padding, padding)
        if long:
            want.insert(0, (0, inline))
            inline = b""
        expect("inline part", m.payload, inline)
        expect("order of Read chunks", [p for p, _ in m.reads], sorted(p for p, _ in m.reads))
        expect("positions of Read chunks", sorted({p for p, _ in m.reads}), [p for p, _ in want])
        for position, data in want:
            got = b"".join(self.pull(s) for p, s in m.reads if p == position)
            expect("Read chunk at %d" % position, got, data)
        expect("Write chunks", [sum(s[1] for s in w) for w in m.writes], list(writes))
        m.room = m.reply and sum(s[1] for s in m.reply)
        expect("Reply chunk", bool(m.room) if reply is True else m.room, reply)
        return m

    def pull(self, segment):
        """Reads a segment in several RDMA Reads."""
        stag, length, offset = segment
        step = 2999
        return b"".join(self.read((stag, min(step, length - k), offset + k)) for k in range(0, length, step))

    def put(self, segments, data):
        """Writes data into a chunk, its end first, and returns the chunk with the lengths."""
        pieces, at = [], 0
        for s in segments:
            n = min(s[1], len(data) - at)
            pieces.append((s, data[at:at + n]))
            at += n
        expect("room in the chunk", at, len(data))
        for s, piece in reversed(pieces):
            half = len(piece) // 2
            self.write((s[0], 0, s[2] + half), piece[half:])
            self.write(s, piece[:half])
        return [(s[0], len(piece), s[2]) for s, piece in pieces]

    def answer(self, m, payload=b"", proc=MSG, chunks=None, words=b"", invalidate=None):
        self.send(u32(m.xid, 1, CREDITS, proc) + words + (lists() if chunks is None else chunks) + payload, invalidate)

    def refuse(self, m):
        self.send(u32(m.xid, 1, CREDITS, ERROR, 2))

    def null(self):
        m = self.call(100003, 3, 0, [])
        self.answer(m, accepted(m.xid))

    def done(self, m):
        """Waits for RDMA_DONE; then the memory is gone."""
        d = self.message()
        expect("RDMA_DONE", (d.proc, d.xid), (DONE, m.xid))
        self.memory.clear()


# NFS

def compound(*operations):
    return [u32(0, 0, len(operations))] + [p for o in operations for p in o]


def results4(xid, *operations):
    return accepted(xid) + u32(0, 0, len(operations)) + b"".join(operations)


PUTROOTFH = [u32(24)]


def op_write(offset, data):
    return [u32(38) + bytes(16) + u64(offset) + u32(2), Data(data)]


def op_read(offset, n):
    return [u32(25) + bytes(16) + u64(offset) + u32(n)]


def op_lookup(name):
    return [u32(15) + opaque(name)]


def wrote(n):
    return u32(38, 0, n, 2) + bytes(8)


def have_read(n, eof=0):
    """The result of a READ up to its data."""
    return u32(25, 0, eof, n)


HANDLE = b"handle"


def read3(offset, n):
    return [opaque(HANDLE) + u64(offset) + u32(n)]


def write3(offset, data):
    return [opaque(HANDLE) + u64(offset) + u32(len(data), 2), Data(data)]


def have_read3(n):
    return u32(0, 0, n, 1, n)


def have_written3(n):
    return u32(0, 0, 0, n, 2) + bytes(8)


def read_dir():
    return [opaque(HANDLE) + u64(0) + bytes(8) + u32(8000, 8000)]


# Cases: each serves one connection. The requester begins and ends with NULL.

def case_two_read_chunks(s):
    """A COMPOUND with two WRITEs: a Read chunk for each, read in pieces."""
    a, b = pattern(6001, 1), pattern(7002, 2)
    m = s.call(100003, 4, 1, compound(PUTROOTFH, op_write(0, a), op_write(6001, b)), chunked=(a, b))
    s.answer(m, results4(m.xid, u32(24, 0), wrote(6001), wrote(7002)))


def case_two_write_chunks(s):
    """A COMPOUND with two READs: a Write chunk for each, the second is written first."""
    m = s.call(100003, 4, 1, compound(PUTROOTFH, op_read(0, 5001), op_read(5001, 6002)), writes=(5001, 6002))
    second = s.put(m.writes[1], pattern(6002, 4))
    first = s.put(m.writes[0], pattern(5001, 3))
    payload = results4(m.xid, u32(24, 0), have_read(5001), have_read(6002, 1))
    s.answer(m, payload, chunks=lists(writes=[first, second]))


def case_read_and_write_chunks(s):
    """WRITE and READ in one COMPOUND; the READ is short."""
    a = pattern(9003, 5)
    m = s.call(100003, 4, 1, compound(PUTROOTFH, op_write(0, a), op_read(7, 8005)), chunked=(a,), writes=(8005,))
    chunk = s.put(m.writes[0], pattern(4999, 6))
    s.answer(m, results4(m.xid, u32(24, 0), wrote(9003), have_read(4999, 1)), chunks=lists(writes=[chunk]))


def three_reads(s, slides):
    m = s.call(100003, 4, 1, compound(op_read(0, 5001), op_read(1, 6002), op_read(2, 7003)), writes=(5001, 6002, 7003))
    used = [s.put(m.writes[0], pattern(5001, 7)), s.put(m.writes[1 if slides else 2], pattern(5003, 8))]
    empty = [(g[0], 0, g[2]) for g in m.writes[2 if slides else 1]]
    used.insert(2 if slides else 1, empty)
    s.answer(m, results4(m.xid, have_read(5001), have_read(0, 1), have_read(5003, 1)), chunks=lists(writes=used))


def case_empty_result(s):
    """A READ without data leaves its Write chunk unused (RFC 8267 section 6.4.1)."""
    three_reads(s, False)


def case_empty_result_slides(s):
    """A READ without data leaves its Write chunk to the next one (RFC 8166 section 4.3.2.2)."""
    three_reads(s, True)


def case_unused_write_chunk(s):
    """A READ that fails: four ways to return its Write chunk."""
    for k in range(4):
        m = s.call(100003, 3, 6, read3(0, 6000), writes=(6000,))
        zero = [[(g[0], 0, g[2]) for g in m.writes[0]]]
        s.answer(m, accepted(m.xid) + u32(5, 0), chunks=lists(writes=[zero, [[]], [], m.writes][k]))


def case_round_up(s):
    """The length of a Write chunk counts round-up that was not written (RFC 5666 section 3.7)."""
    m = s.call(100003, 3, 6, read3(0, 6001), writes=(6001,))
    s.put(m.writes[0], pattern(6001, 9))
    stag, _, offset = m.writes[0][0]
    s.answer(m, accepted(m.xid) + have_read3(6001), chunks=lists(writes=[[(stag, 6004, offset)]]))


def case_long_call(s):
    """A call without eligible data: a Position Zero Read chunk."""
    m = s.call(100003, 4, 1, compound(PUTROOTFH, *[op_lookup(pattern(101, k)) for k in range(60)]), long=True)
    s.answer(m, results4(m.xid, u32(24, 0), u32(15, 2)))


def case_long_call_and_argument(s):
    """A Position Zero Read chunk beside a Read chunk."""
    a = pattern(9001, 10)
    operations = [op_lookup(pattern(101, k)) for k in range(40)] + [op_write(0, a)]
    m = s.call(100003, 4, 1, compound(PUTROOTFH, *operations), chunked=(a,), long=True)
    s.answer(m, results4(m.xid, u32(24, 0), u32(15, 2)))


def case_long_reply(s):
    """A reply in the Reply chunk, and one that is inline although there is a Reply chunk."""
    m = s.call(100003, 3, 17, read_dir(), reply=True)
    chunk = s.put(m.reply, accepted(m.xid) + pattern(7996, 11))
    s.answer(m, proc=NOMSG, chunks=lists(reply=chunk))
    m = s.call(100003, 3, 17, read_dir(), reply=m.room)
    s.answer(m, accepted(m.xid) + pattern(200, 12), chunks=lists(reply=[(g[0], 0, g[2]) for g in m.reply]))


ACL = [u32(9, 1, 1 << 12)]


def case_reply_grows(s):
    """ERR_CHUNK for an ACL that is longer than estimated: the call comes again, with more room."""
    m = s.call(100003, 4, 1, compound(PUTROOTFH, ACL), reply=True)
    s.refuse(m)
    again = s.call(100003, 4, 1, compound(PUTROOTFH, ACL), reply=4 * m.room)
    if again.xid == m.xid:
        raise AssertionError("the XID is the same")
    payload = results4(again.xid, u32(24, 0), u32(9, 0, 1, 1 << 12) + opaque(pattern(200_001, 13)))
    s.answer(again, proc=NOMSG, chunks=lists(reply=s.put(again.reply, payload)))


def case_reply_does_not_grow(s):
    """ERR_CHUNK for a call that removes a file: it does not come again."""
    s.refuse(s.call(100003, 4, 1, compound(PUTROOTFH, [u32(28) + opaque(b"victim")], ACL), reply=True))


def case_err_chunk(s):
    """ERR_CHUNK for calls with each kind of chunk: they fail, and the connection goes on."""
    a = pattern(9000, 14)
    s.refuse(s.call(100003, 3, 6, read3(0, 6000), writes=(6000,)))
    s.refuse(s.call(100003, 3, 7, write3(0, a), chunked=(a,)))
    s.refuse(s.call(100003, 3, 17, read_dir(), reply=True))
    s.refuse(s.call(100003, 4, 1, compound(PUTROOTFH, *[op_lookup(pattern(101, k)) for k in range(60)]), long=True))
    s.refuse(s.call(100003, 3, 6, read3(0, 60)))


def case_bad_replies(s):
    """Replies that the requester must not believe; each fails its call, and the connection goes on."""
    def good(m):
        return accepted(m.xid) + have_read3(6000)

    def with_writes(writes, payload=good, proc=MSG):
        return lambda m: u32(proc) + lists(writes=writes(m)) + payload(m)

    def length(n):
        return lambda m: [[(m.writes[0][0][0], n, m.writes[0][0][2])]]

    def as_offered(m):
        return m.writes

    other = (0x777, 6000, 0x1000)
    for what, answer in [
        ("two Write chunks", with_writes(lambda m: m.writes * 2)),
        ("another handle", with_writes(lambda m: [[other]])),
        ("two segments", with_writes(lambda m: [m.writes[0] * 2])),
        ("more bytes than there is room", with_writes(length(6005))),
        ("fewer bytes than the result has", with_writes(length(5990))),
        ("more bytes than the result has", with_writes(as_offered, lambda m: accepted(m.xid) + have_read3(100))),
        ("bytes of a result that failed", with_writes(length(8), lambda m: accepted(m.xid) + u32(5, 0))),
        ("a Reply chunk", lambda m: u32(MSG) + lists(writes=m.writes, reply=[other]) + good(m)),
        ("RDMA_NOMSG without a Reply chunk", with_writes(as_offered, lambda m: b"", NOMSG)),
        ("a Read list", lambda m: u32(MSG) + lists([(44, other)], m.writes) + good(m)),
        ("procedure 5", with_writes(as_offered, proc=5)),
        ("RDMA_MSGP", lambda m: u32(MSGP, 64, 100) + lists(writes=m.writes) + good(m)),
        ("a discriminator of 2", lambda m: u32(MSG, 0, 2, 0)),
        ("a list that ends early", lambda m: u32(MSG, 0, 1, 1, m.writes[0][0][0])),
        ("another XID in the RPC header", with_writes(as_offered, lambda m: accepted(m.xid + 1) + have_read3(6000))),
        ("an RPC header that ends early", with_writes(as_offered, lambda m: accepted(m.xid)[:20])),
        ("nothing", lambda m: u32(MSG) + lists()),
    ]:
        try:
            m = s.call(100003, 3, 6, read3(0, 6000), writes=(6000,))
            s.put(m.writes[0], pattern(6000, 15))
            s.send(u32(m.xid, 1, CREDITS) + answer(m))
            s.null()
        except Exception as e:
            raise AssertionError("%s: %s" % (what, e)) from e
    m = s.call(100003, 3, 6, read3(0, 6000), writes=(6000,))  # a good one ends them
    s.answer(m, good(m), chunks=lists(writes=[s.put(m.writes[0], pattern(6000, 15))]))


def case_remote_invalidation(s):
    """Send with Invalidate of the handle of a Write chunk, and of a Read chunk."""
    m = s.call(100003, 3, 6, read3(0, 6000), writes=(6000,))
    chunk = s.put(m.writes[0], pattern(6000, 16))
    s.answer(m, accepted(m.xid) + have_read3(6000), chunks=lists(writes=[chunk]), invalidate=chunk[0][0])
    a = pattern(9000, 17)
    m = s.call(100003, 3, 7, write3(0, a), chunked=(a,))
    s.answer(m, accepted(m.xid) + have_written3(9000), invalidate=m.reads[0][1][0])


def case_padding(s):
    """RDMA_MSGP, sent and received."""
    a = pattern(3001, 18)
    m = s.call(100003, 3, 7, write3(0, a), padding=(512, 3000))
    s.answer(m, accepted(m.xid) + have_written3(3001))
    m = s.call(100003, 3, 6, read3(0, 2500))
    head, data = accepted(m.xid) + have_read3(2500), pattern(2500, 19)
    s.answer(m, head + bytes(-(36 + len(head)) % 256) + data, MSGP, words=u32(256, 2000))


def case_padding_refused(s):
    """ERR_CHUNK for RDMA_MSGP: the call comes again without padding, and so do all later ones."""
    a = pattern(3001, 18)
    m = s.call(100003, 3, 7, write3(0, a), padding=(512, 3000))
    s.refuse(m)
    for _ in range(2):
        again = s.call(100003, 3, 7, write3(0, a))
        s.answer(again, accepted(again.xid) + have_written3(3001))


def case_read_read_data(s):
    """Results as Read chunks of the reply, in several segments; the list is unsorted."""
    m = s.call(100003, 4, 1, compound(op_read(0, 9001), op_read(9001, 8002)))
    a, b = pattern(9001, 20), pattern(8002, 21)
    head = accepted(m.xid) + u32(0, 0, 2) + have_read(9001)
    first = len(head)
    second = first + 9004 + len(have_read(0))
    reads = [(second, s.expose(b[:1], write=False)), (second, s.expose(b[1:], write=False)),
             (first, s.expose(a[:4000], write=False)), (first, s.expose(a[4000:], write=False))]
    s.answer(m, head + have_read(8002, 1), chunks=lists(reads))
    s.done(m)


def case_read_read_long(s):
    """A whole reply as a Read chunk at position 0."""
    m = s.call(100003, 3, 17, read_dir())
    stream = accepted(m.xid) + pattern(7996, 22)
    reads = [(0, s.expose(p, write=False)) for p in (stream[:5], stream[5:4100], stream[4100:])]
    s.answer(m, proc=NOMSG, chunks=lists(reads))
    s.done(m)


def case_read_read_refused(s):
    """ERR_CHUNK for a call without room: it comes again with a Write chunk, and so do later ones."""
    s.refuse(s.call(100003, 3, 6, read3(0, 6000)))
    for _ in range(2):
        m = s.call(100003, 3, 6, read3(0, 6000), writes=(6000,))
        s.answer(m, accepted(m.xid) + have_read3(6000), chunks=lists(writes=[s.put(m.writes[0], pattern(6000, 23))]))


def case_configuration(s):
    """The Connection Configuration Protocol raises the thresholds, and sets the alignment."""
    a = pattern(7001, 24)
    m = s.call(100003, 3, 7, write3(0, a), padding=(1024, 7000))
    s.answer(m, accepted(m.xid) + have_written3(7001))
    m = s.call(100003, 3, 6, read3(0, 7001))
    s.answer(m, accepted(m.xid) + have_read3(7001) + opaque(pattern(7001, 25))[4:])


def case_configuration_missing(s):
    """A server without the protocol, and without private data: 1024 bytes both ways."""
    a = pattern(1400, 26)
    m = s.call(100003, 3, 7, write3(0, a), chunked=(a,))
    s.answer(m, accepted(m.xid) + have_written3(1400))
    m = s.call(100003, 3, 6, read3(0, 1400), writes=(1400,))
    s.answer(m, accepted(m.xid) + have_read3(1400), chunks=lists(writes=[s.put(m.writes[0], pattern(1400, 27))]))


def case_err_vers(s):
    """Nothing more than NULL: the first message had version 2."""


def before_configuration(s):
    m = s.call(100417, 1, 1, [u32(8192, 8192, 16)])
    s.answer(m, accepted(m.xid) + u32(8192, 1024, 7))


def before_configuration_missing(s):
    m = s.call(100417, 1, 1, [u32(4096, 4096, 16)])
    s.answer(m, u32(m.xid, 1, 0, 0, 0, 1))


def before_err_vers(s):
    r = Reader(s.receive())
    xid, version = r.u32(), r.u32()
    expect("version", version, 2)
    s.send(u32(xid, 2, CREDITS, ERROR, 1, 1, 1))


def main():
    name = sys.argv[1]
    listener = socket.create_server(("127.0.0.1", 0))
    print("127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    try:
        s = Server(listener.accept()[0], b"" if name.startswith("configuration") else PRIVATE)
        globals().get("before_" + name, lambda s: None)(s)
        s.null()
        globals()["case_" + name](s)
        s.null()
        expect("further messages", s.messages, [])
        expect("RDMA Writes to the server", s.written, [])
        print("ok")
    except Exception as e:
        traceback.print_exc()
        print("failed %s" % e)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
