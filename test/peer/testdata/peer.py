#!/usr/bin/env python3
"""A client of RPC-over-RDMA version 1 that shares no code with Sluice.

It has its own CRC32C, iWARP (MPA, DDP, RDMAP), RPC-over-RDMA headers and XDR, from the RFCs and
Python's standard library. It sends forms that no Linux client sends, and checks every byte that
comes back.

    peer.py HOST:PORT [HOST:PORT]

The second server has no form of RFC 5666; the cases called plain_ are for it. Each case has a
connection of its own. A line "ok NAME" or "failed NAME: REASON" is printed for each.
"""
import itertools
import random
import socket
import struct
import sys
import traceback

# CRC32C (RFC 3720 appendix B.4)
TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def u32(*values):
    return struct.pack(">%dI" % len(values), *values)


def u64(v):
    return struct.pack(">Q", v)


def opaque(b):
    return u32(len(b)) + b + bytes(-len(b) % 4)


def pattern(n, k):
    return bytes((i * 31 + k * 7 + (i >> 8)) & 0xFF for i in range(n))


def expect(what, got, want):
    if got != want and isinstance(want, bytes) and len(want) > 64:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise AssertionError("%s: %d bytes of %d, the first difference is at %d" % (what, len(got), len(want), at))
    if got != want:
        raise AssertionError("%s is %r, must be %r" % (what, got, want))


class Ended(Exception):
    """The connection has ended."""


# Opcodes of RDMAP (RFC 5040 section 4.1)
WRITE, READ, RESPONSE, SEND, SEND_INVALIDATE, TERMINATE = 0, 1, 2, 3, 4, 7


class Endpoint:
    """An iWARP connection (RFC 5044, 5041, 5040, 6581)."""

    peer = "server"

    def __init__(self, sock):
        self.sock = sock
        self.buf = b""
        self.msn = {0: 0, 1: 0, 2: 0}
        self.memory = {}  # STag: [bytearray, may be read, may be written]
        self.written = []  # STag, offset, length of each RDMA Write that came
        self.reads = 0  # RDMA Reads that came
        self.refuses = set()  # STags whose RDMA Reads end the connection
        self.stags = itertools.count(0x1000, 0x101)
        self.messages = []
        self.partial = b""
        self.response = None

    def send_mpa(self, key, private):
        b = struct.pack(">HH", 16, 16) + private  # outstanding RDMA Reads
        self.sock.sendall(key + struct.pack(">BBH", 0x50, 2, len(b)) + b)

    def take_mpa(self, key):
        head = self.take(20)
        expect("MPA frame", head[:16], key)
        flags, revision, length = struct.unpack(">BBH", head[16:])
        expect("MPA revision", revision, 2)
        expect("markers and refusal", flags & 0xA0, 0)
        return flags, self.take(length)

    def take(self, n):
        while len(self.buf) < n:
            more = self.sock.recv(1 << 16)
            if not more:
                raise Ended("the %s closed the connection" % self.peer)
            self.buf += more
        b, self.buf = self.buf[:n], self.buf[n:]
        return b

    def frame(self, ulpdu):
        b = struct.pack(">H", len(ulpdu)) + ulpdu
        b += bytes(-len(b) % 4)
        self.sock.sendall(b + struct.pack("<I", crc32c(b)))

    def untagged(self, op, queue, data, invalidate=0):
        self.msn[queue] += 1
        self.frame(bytes([0x41, 0x40 | op]) + u32(invalidate, queue, self.msn[queue], 0) + data)

    def send(self, data, invalidate=None):
        if invalidate is None:
            self.untagged(SEND, 0, data)
        else:
            self.untagged(SEND_INVALIDATE, 0, data, invalidate)

    def tagged(self, op, stag, offset, data, step):
        for k in range(0, max(len(data), 1), step):
            flags = 0xC1 if k + step >= len(data) else 0x81
            self.frame(bytes([flags, 0x40 | op]) + struct.pack(">IQ", stag, offset + k) + data[k:k + step])

    def write(self, segment, data):
        """Writes to the beginning of a segment of the peer's memory."""
        self.tagged(WRITE, segment[0], segment[2], data, 1399)

    def expose(self, data, read=True, write=True):
        """Exposes memory, and returns a segment (RFC 8166 section 3.4.3)."""
        stag = next(self.stags)
        self.memory[stag] = [bytearray(data), read, write]
        return stag, len(data), 0x10000 * stag

    def find(self, stag, offset, length, index):
        region = self.memory.get(stag)
        if region is None or not region[index]:
            raise AssertionError("the %s used STag %#x, which is not exposed to it" % (self.peer, stag))
        at = offset - 0x10000 * stag
        if at < 0 or at + length > len(region[0]):
            raise AssertionError("the %s used %d bytes at %d of a region of %d" % (self.peer, length, at, len(region[0])))
        return region[0], at

    def step(self):
        """Takes one frame."""
        head = self.take(2)
        n, = struct.unpack(">H", head)
        rest = self.take(n + -(n + 2) % 4)
        expect("CRC", struct.unpack("<I", self.take(4))[0], crc32c(head + rest))
        b = rest[:n]
        op, last = b[1] & 15, b[0] & 0x40
        expect("DDP and RDMAP version", (b[0] & 3, b[1] >> 6), (1, 1))
        expect("tagged", bool(b[0] & 0x80), op in (WRITE, RESPONSE))
        if op in (WRITE, RESPONSE):
            stag, offset = struct.unpack(">IQ", b[2:14])
            data = b[14:]
            if op == RESPONSE:
                sink, at = self.response, offset
                sink[at:at + len(data)] = data
                if last:
                    self.response = None
                return
            if not data:  # it wakes a peer
                return
            mem, at = self.find(stag, offset, len(data), 2)
            mem[at:at + len(data)] = data
            self.written.append((stag, at, len(data)))
            return
        invalidate, queue, _, offset = struct.unpack(">IIII", b[2:18])
        data = b[18:]
        if op in (SEND, SEND_INVALIDATE):
            expect("queue and offset of a Send", (queue, offset), (0, len(self.partial)))
            self.partial += data
            if last:
                self.messages.append(self.partial)
                self.partial = b""
        elif op == READ:
            sink, sink_at, size, stag, at = struct.unpack(">IQIIQ", data)
            if stag in self.refuses:  # RFC 5040 section 4.8: remote protection error, invalid STag
                self.untagged(TERMINATE, 2, struct.pack(">BBHH", 0x01, 0, 0xE000, n) + b[:18] + data)
                raise Ended("an RDMA Read was refused")
            mem, at = self.find(stag, at, size, 1)
            self.reads += 1
            self.tagged(RESPONSE, sink, sink_at, bytes(mem[at:at + size]), 8192)
        elif op == TERMINATE:
            raise Ended("the %s sent Terminate %s" % (self.peer, data[:4].hex()))
        else:
            raise AssertionError("opcode %d" % op)

    def receive(self):
        while not self.messages:
            self.step()
        return self.messages.pop(0)

    def read(self, segment):
        """Reads a segment of the peer's memory."""
        stag, length, offset = segment
        self.response = bytearray(length)
        sink = self.response
        self.untagged(READ, 1, struct.pack(">IQIIQ", 1, 0, length, stag, offset))
        while self.response is not None:
            self.step()
        return bytes(sink)

    def close(self):
        self.sock.close()


PRIVATE = bytes.fromhex("f6ab0e1801000303")  # RFC 8797: 4096 bytes both ways

# Procedures of RPC-over-RDMA (RFC 5666 section 4.3)
MSG, NOMSG, MSGP, DONE, ERROR = range(5)
XIDS = itertools.count(random.getrandbits(31))  # the server knows earlier ones


def segment(s):
    return u32(s[0], s[1]) + u64(s[2])


def lists(reads=(), writes=(), reply=None):
    """The chunk lists: reads are (position, segment), writes lists of segments."""
    b = b"".join(u32(1, p) + segment(s) for p, s in reads) + u32(0)
    b += b"".join(u32(1, len(w)) + b"".join(map(segment, w)) for w in writes) + u32(0)
    return b + (u32(0) if reply is None else u32(1, len(reply)) + b"".join(map(segment, reply)))


class Reader:
    def __init__(self, b):
        self.b, self.at = b, 0

    def u32(self):
        self.at += 4
        return struct.unpack(">I", self.b[self.at - 4:self.at])[0]

    def u64(self):
        return self.u32() << 32 | self.u32()

    def fixed(self, n):
        self.at += n + -n % 4
        return self.b[self.at - n - -n % 4:self.at - -n % 4]

    def opaque(self):
        return self.fixed(self.u32())

    def rest(self):
        return self.b[self.at:]

    def segment(self):
        return self.u32(), self.u32(), self.u64()


class Message:
    """A parsed message."""

    def __init__(self, b):
        r = Reader(b)
        self.xid, self.version, self.credits, self.proc = r.u32(), r.u32(), r.u32(), r.u32()
        expect("version", self.version, 1)
        if self.credits == 0:
            raise AssertionError("0 credits are granted")
        self.reads, self.writes, self.reply, self.padding = [], [], None, None
        if self.proc == MSGP:
            self.padding = r.u32(), r.u32()
        if self.proc == DONE:
            expect("length of RDMA_DONE", len(b), 16)
            return
        if self.proc == ERROR:
            self.error = tuple(struct.unpack(">%dI" % (len(r.rest()) // 4), r.rest()))
            return
        while r.u32():
            self.reads.append((r.u32(), r.segment()))
        while r.u32():
            self.writes.append([r.segment() for _ in range(r.u32())])
        if r.u32():
            self.reply = [r.segment() for _ in range(r.u32())]
        self.payload = r.rest()


def call(xid, program, version, procedure, args=b""):
    cred = u32(0) + opaque(b"peer") + u32(0, 0, 0)  # AUTH_SYS, uid and gid 0
    return u32(xid, 0, 2, program, version, procedure, 1) + opaque(cred) + u32(0, 0) + args


ARGS_AT = len(call(0, 0, 0, 0))  # where arguments begin


def results(payload, xid):
    """The results of a successful call."""
    r = Reader(payload)
    expect("RPC reply header", [r.u32() for _ in range(6)], [xid, 1, 0, 0, 0, 0])
    return r


class Client(Endpoint):
    """Makes calls of RPC, NFS and MOUNT."""

    def __init__(self, address, private=PRIVATE):
        self.address = address
        host, port = address.rsplit(":", 1)
        super().__init__(socket.create_connection((host, int(port)), 20))
        self.send_mpa(b"MPA ID Req Frame", private)
        flags, _ = self.take_mpa(b"MPA ID Rep Frame")
        expect("CRC", flags & 0x40, 0x40)

    def exchange(self, head, payload, xid):
        self.send(u32(xid, 1, 32) + head + payload)
        reply = Message(self.receive())
        expect("XID", reply.xid, xid)
        return reply

    def rpc(self, program, version, procedure, args=b"", proc=MSG, chunks=None, words=b""):
        xid = next(XIDS)
        head = u32(proc) + words + (lists() if chunks is None else chunks)
        return xid, self.exchange(head, call(xid, program, version, procedure, args), xid)

    def inline(self, program, version, procedure, args=b""):
        xid, reply = self.rpc(program, version, procedure, args)
        expect("lists and procedure", (reply.proc, reply.reads, reply.writes, reply.reply), (MSG, [], [], None))
        return results(reply.payload, xid)

    def null(self):
        expect("NULL results", self.inline(100003, 3, 0).rest(), b"")

    def refused(self, head, payload, xid):
        """A message that must be answered ERR_CHUNK, on a connection that goes on."""
        reply = self.exchange(head, payload, xid)
        expect("answer", (reply.proc, getattr(reply, "error", None)), (ERROR, (2,)))
        self.null()

    def root(self):
        r = self.inline(100005, 3, 1, opaque(b"/"))
        expect("MOUNT status", r.u32(), 0)
        return r.opaque()

    def create(self, name):
        """Creates a file, or empties it, and returns its handle."""
        attributes = u32(1, 0o644, 0, 0, 1, 0, 0, 0, 0)  # mode, and size 0
        r = self.inline(100003, 3, 8, opaque(self.root()) + opaque(name) + u32(0) + attributes)
        expect("CREATE status", r.u32(), 0)
        expect("handle follows", r.u32(), 1)
        return r.opaque()

    def symlink(self, name, target):
        """Creates a symbolic link, and returns its handle."""
        self.inline(100003, 3, 12, opaque(self.root()) + opaque(name))  # REMOVE an earlier one
        r = self.inline(100003, 3, 10, opaque(self.root()) + opaque(name) + u32(0, 0, 0, 0, 0, 0) + opaque(target))
        expect("SYMLINK status", r.u32(), 0)
        expect("handle follows", r.u32(), 1)
        return r.opaque()

    def fill(self, handle, data):
        """Writes data by one Read chunk."""
        args = opaque(handle) + u64(0) + u32(len(data), 2, len(data))
        xid, reply = self.rpc(100003, 3, 7, args, chunks=lists([(ARGS_AT + len(args), self.expose(data))]))
        self.wrote(reply, xid, len(data))

    def wrote(self, reply, xid, n):
        r = results(reply.payload, xid)
        expect("WRITE status", r.u32(), 0)
        for length in (24, 84):  # wcc_data
            if r.u32():
                r.fixed(length)
        expect("WRITE count and stability", (r.u32(), r.u32()), (n, 2))

    def content(self, handle, n):
        """Reads a file by one Write chunk, and returns its bytes."""
        place = self.expose(bytes(n), read=False)
        args = opaque(handle) + u64(0) + u32(n)
        xid, reply = self.rpc(100003, 3, 6, args, chunks=lists(writes=[[place]]))
        expect("Write chunk", reply.writes, [[place]])
        r = results(reply.payload, xid)
        self.read_head(r, n)
        expect("inline rest", r.rest(), b"")
        return bytes(self.memory[place[0]][0])

    def read_head(self, r, n):
        expect("READ status", r.u32(), 0)
        if r.u32():
            r.fixed(84)
        expect("READ count, eof and length", (r.u32(), r.u32(), r.u32()), (n, 1, n))


class Session:
    """A session of NFS version 4.1 (RFC 8881) with one slot."""

    def __init__(self, client):
        self.client, self.seq = client, 0
        owner = bytes(random.getrandbits(8) for _ in range(16))
        r = self.compound([u32(42) + owner[:8] + opaque(owner) + u32(0, 0, 0)])
        expect("EXCHANGE_ID", (r.u32(), r.u32()), (42, 0))
        clientid, sequence = r.u64(), r.u32()
        channel = u32(0, 1 << 20, 1 << 20, 4096, 16, 1, 0)
        r = self.compound([u32(43) + u64(clientid) + u32(sequence, 0) + channel + channel + u32(0x40000000, 1, 0)])
        expect("CREATE_SESSION", (r.u32(), r.u32()), (43, 0))
        self.id = r.fixed(16)
        r = self.call([u32(58, 0)])  # RECLAIM_COMPLETE
        expect("RECLAIM_COMPLETE", (r.u32(), r.u32()), (58, 0))

    def args(self, operations):
        return opaque(b"") + u32(1, len(operations)) + b"".join(operations)

    def sequence(self):
        self.seq += 1
        return u32(53) + self.id + u32(self.seq, 0, 0, 0)

    def results(self, stream, xid, n):
        r = results(stream, xid)
        expect("COMPOUND status", r.u32(), 0)
        r.opaque()
        expect("operations", r.u32(), n)
        return r

    def compound(self, operations):
        xid, reply = self.client.rpc(100003, 4, 1, self.args(operations))
        return self.results(reply.payload, xid, len(operations))

    def call(self, operations):
        return self.after_sequence(self.compound([self.sequence()] + operations))

    def after_sequence(self, r):
        expect("SEQUENCE", (r.u32(), r.u32()), (53, 0))
        r.fixed(16 + 20)
        return r

    def chunked(self, name, operations, write_places=()):
        """Makes a COMPOUND on a file, with a Read chunk for each data of WRITEs, listed backwards."""
        parts = [(self.sequence(), None), (u32(24), None), (u32(15) + opaque(name), None)] + operations
        inline, reads, position = opaque(b"") + u32(1, len(parts)), [], ARGS_AT + 12
        for head, data in parts:
            inline += head
            position += len(head)
            if data is not None:
                inline += u32(len(data))
                position += 4
                reads.insert(0, (position, self.client.expose(data)))
                position += len(data) + -len(data) % 4
        xid, reply = self.client.rpc(100003, 4, 1, inline, chunks=lists(reads, [[p] for p in write_places]))
        if reply.proc == ERROR:
            raise AssertionError("the server answered ERR_CHUNK")
        r = self.after_sequence(self.results(reply.payload, xid, len(parts)))
        expect("PUTROOTFH and LOOKUP", [r.u32() for _ in range(4)], [24, 0, 15, 0])
        return xid, reply, r


ANONYMOUS = bytes(16)  # the stateid


def op_write(offset, data):
    return u32(38) + ANONYMOUS + u64(offset) + u32(2), data


def op_read(offset, n):
    return u32(25) + ANONYMOUS + u64(offset) + u32(n), None


def wrote4(r, n):
    expect("WRITE", [r.u32() for _ in range(4)], [38, 0, n, 2])
    r.fixed(8)


def write_args(handle, offset, n):
    return opaque(handle) + u64(offset) + u32(n, 2, n)


# Cases: functions of a client.

def case_write_chunk_segments(c):
    """A Read chunk of five segments, one of them empty; then a Write chunk of three."""
    f, data = c.create(b"segments"), pattern(5003, 1)
    parts = [data[:1], data[1:8], b"", data[8:4000], data[4000:]]
    args = write_args(f, 0, len(data))
    reads = [(ARGS_AT + len(args), c.expose(p)) for p in parts]
    xid, reply = c.rpc(100003, 3, 7, args, chunks=lists(reads))
    c.wrote(reply, xid, len(data))
    places = [c.expose(bytes(n), read=False) for n in (7, 4096, 2000)]
    xid, reply = c.rpc(100003, 3, 6, opaque(f) + u64(0) + u32(5003), chunks=lists(writes=[places]))
    want = [places[0], places[1], (places[2][0], 900, places[2][2])]
    expect("Write chunk", reply.writes, [want])
    c.read_head(results(reply.payload, xid), 5003)
    expect("data", b"".join(bytes(c.memory[p[0]][0]) for p in places), data + bytes(1100))


def case_read_chunk_round_up(c):
    """Round-up bytes inside a Read chunk do not get into the file."""
    f, data = c.create(b"roundup"), pattern(1001, 2)
    args = write_args(f, 0, 1001)
    xid, reply = c.rpc(100003, 3, 7, args, chunks=lists([(ARGS_AT + len(args), c.expose(data + b"\xff\xff\xff"))]))
    c.wrote(reply, xid, 1001)
    expect("file", c.content(f, 1001), data)


def case_read_chunk_of_round_up(c):
    """Round-up as a chunk of its own, at a position that is no multiple of 4 (RFC 5666 section 3.7)."""
    f, data = c.create(b"roundupchunk"), pattern(1001, 2)
    args = write_args(f, 0, 1001)
    reads = [(ARGS_AT + len(args), c.expose(data)), (ARGS_AT + len(args) + 1001, c.expose(b"\xff\xff\xff"))]
    for r in (reads, reads[::-1]):
        xid, reply = c.rpc(100003, 3, 7, args, chunks=lists(r))
        c.wrote(reply, xid, 1001)
        expect("file", c.content(f, 1001), data)


def case_write_chunk_round_up(c):
    """Room for round-up in a segment of its own: nothing is written there, nor counted."""
    f, data = c.create(b"writeroundup"), pattern(1001, 2)
    c.fill(f, data)
    places = [c.expose(bytes(1001), read=False), c.expose(b"xyz", read=False)]
    xid, reply = c.rpc(100003, 3, 6, opaque(f) + u64(0) + u32(1001), chunks=lists(writes=[places]))
    expect("Write chunk", reply.writes, [[places[0], (places[1][0], 0, places[1][2])]])
    c.read_head(results(reply.payload, xid), 1001)
    expect("data and room", [bytes(c.memory[p[0]][0]) for p in places], [data, b"xyz"])


def case_long_call_and_argument(c):
    """A Position Zero Read chunk in two segments, after the argument's chunk: an unsorted list."""
    f, data = c.create(b"unsorted"), pattern(6000, 3)
    xid = next(XIDS)
    args = write_args(f, 0, 6000)
    stream = call(xid, 100003, 3, 7, args)
    reads = [(len(stream), c.expose(data)), (0, c.expose(stream[:30])), (0, c.expose(stream[30:]))]
    reply = c.exchange(u32(NOMSG) + lists(reads), b"", xid)
    c.wrote(reply, xid, 6000)
    expect("file", c.content(f, 6000), data)


def case_long_reply(c):
    """A reply in the Reply chunk, in segments that words cross."""
    places = [c.expose(bytes(n), read=False) for n in (9, 2, 8000)]
    for k in range(30):
        c.create(b"a-file-with-a-rather-long-name-%020d" % k)
    xid, reply = c.rpc(100003, 3, 17, opaque(c.root()) + u64(0) + u64(0) + u32(8000, 8000), chunks=lists(reply=places))
    expect("procedure", reply.proc, NOMSG)
    n = sum(s[1] for s in reply.reply)
    stream = b"".join(bytes(c.memory[p[0]][0]) for p in places)[:n]
    r = results(stream, xid)
    expect("READDIRPLUS status", r.u32(), 0)
    if stream.count(b"a-file-with-a-rather-long-name-") < 10:
        raise AssertionError("names are missing")


def case_unused_write_chunk(c):
    """A READ that fails leaves its Write chunk unused: no bytes, and nothing is written."""
    place = c.expose(b"x" * 100, read=False)
    xid, reply = c.rpc(100003, 3, 6, opaque(c.root()) + u64(0) + u32(100), chunks=lists(writes=[[place]]))
    expect("Write list", reply.writes, [[(place[0], 0, place[2])]])
    expect("RDMA Writes and memory", (c.written, bytes(c.memory[place[0]][0])), ([], b"x" * 100))
    if results(reply.payload, xid).u32() == 0:
        raise AssertionError("READ of a directory succeeded")


def case_msgp(c):
    """RDMA_MSGP: a WRITE whose data are padded, for alignments from 0 to 2048."""
    f = c.create(b"padded")
    for k, align in enumerate((0, 1, 4, 64, 512, 2048)):
        data, xid = pattern(1501, 4 + k), next(XIDS)
        stream = call(xid, 100003, 3, 7, write_args(f, 0, 1501))
        pad = -(36 + len(stream)) % align if align > 1 else 0
        payload = stream + bytes(pad) + data + bytes(3)
        reply = c.exchange(u32(MSGP, align, 1000) + lists(), payload, xid)
        c.wrote(reply, xid, 1501)
        expect("file", c.content(f, 1501), data)


def case_msgp_refused(c):
    """An alignment that is no power of two, and MSGP with a Position Zero Read chunk."""
    xid = next(XIDS)
    c.refused(u32(MSGP, 24, 0) + lists(), call(xid, 100003, 3, 0), xid)
    c.refused(u32(MSGP, 64, 0) + lists([(0, c.expose(bytes(80)))]), call(xid, 100003, 3, 0), xid)


def case_read_read_data(c):
    """A READ without chunks: the data are a Read chunk of the reply, and RDMA_DONE frees them."""
    f, data = c.create(b"readread"), pattern(20001, 5)
    c.fill(f, data)
    for _ in range(40):  # more than may be exposed at once
        xid, reply = c.rpc(100003, 3, 6, opaque(f) + u64(0) + u32(20001))
        r = results(reply.payload, xid)
        c.read_head(r, 20001)
        expect("inline rest", r.rest(), b"")
        expect("position", {p for p, _ in reply.reads}, {len(reply.payload)})
        expect("data", b"".join(c.read(s) for _, s in reply.reads), data)
        c.send(u32(xid, 1, 32, DONE))
    c.null()


def case_read_read_long(c):
    """A READDIRPLUS without a Reply chunk: the whole reply is a Read chunk at position 0."""
    for k in range(30):
        c.create(b"a-file-with-a-rather-long-name-%020d" % k)
    xid, reply = c.rpc(100003, 3, 17, opaque(c.root()) + u64(0) + u64(0) + u32(8000, 8000))
    expect("procedure and positions", (reply.proc, {p for p, _ in reply.reads}), (NOMSG, {0}))
    expect("READDIRPLUS status", results(b"".join(c.read(s) for _, s in reply.reads), xid).u32(), 0)
    c.send(u32(xid, 1, 32, DONE))
    c.null()


def case_read_after_done(c):
    """After RDMA_DONE the server's memory is gone: an RDMA Read ends the connection."""
    f = c.create(b"afterdone")
    c.fill(f, pattern(9000, 6))
    xid, reply = c.rpc(100003, 3, 6, opaque(f) + u64(0) + u32(9000))
    c.send(u32(xid, 1, 32, DONE))
    c.null()
    try:
        c.read(reply.reads[0][1])
    except (Ended, ConnectionError):
        return
    raise AssertionError("the memory could be read")


def case_done_for_nothing(c):
    """RDMA_DONE for a reply that is not exposed is dropped, and takes no credit."""
    for _ in range(100):
        c.send(u32(next(XIDS), 1, 32, DONE))
        c.null()


def case_configuration(c):
    """The Connection Configuration Protocol raises the reply threshold to the server's."""
    expect("NULL", c.inline(100417, 1, 0).rest(), b"")
    r = c.inline(100417, 1, 1, u32(1 << 20, 1 << 20, 7))
    expect("call size, alignment, RDMA Reads", [r.u32(), r.u32(), r.u32(), r.rest()], [8192, 1024, 7, b""])
    f, data = c.create(b"configured"), pattern(7000, 7)
    args = write_args(f, 0, 7000)
    xid = next(XIDS)
    reply = c.exchange(u32(MSG) + lists(), call(xid, 100003, 3, 7, args) + data, xid)
    c.wrote(reply, xid, 7000)
    xid, reply = c.rpc(100003, 3, 6, opaque(f) + u64(0) + u32(7000))
    r = results(reply.payload, xid)
    expect("lists", (reply.proc, reply.reads), (MSG, []))
    c.read_head(r, 7000)
    expect("data", r.rest(), data)


def case_err_chunk(c):
    """Each cause of ERR_CHUNK, on one connection."""
    f = c.create(b"refused")
    args = write_args(f, 0, 100)
    place, source = c.expose(bytes(100)), c.expose(pattern(100, 8))

    def with_args(xid):
        return call(xid, 100003, 3, 7, args)

    at = ARGS_AT + len(args)
    overflow = (1, 100, (1 << 64) - 50)
    for what, head, payload in [
        ("procedure 5", u32(5) + lists(), None),
        ("RDMA_NOMSG without a chunk", u32(NOMSG) + lists(), b""),
        ("RDMA_MSG with a Position Zero Read chunk", u32(MSG) + lists([(0, source)]), None),
        ("a list that ends early", u32(MSG, 1, at, 5, 100), b""),
        ("a position that is no multiple of 4", u32(MSG) + lists([(at + 2, source)]), with_args),
        ("a position beyond the message", u32(MSG) + lists([(at + 400, source)]), with_args),
        ("overlapping Read chunks", u32(MSG) + lists([(at, source), (at + 4, source)]), with_args),
        ("a chunk at an argument that is not eligible", u32(MSG) + lists([(ARGS_AT + 4, source)]), with_args),
        ("a position that comes again", u32(MSG) + lists([(at, source), (at + 100, source), (at, source)]), with_args),
        ("a discriminator of 2", u32(MSG, 2, 0, 0, 0), None),
        ("a Write chunk that ends early", u32(MSG, 0, 1, 5, 0, 0), b""),
        ("a Reply chunk that ends early", u32(MSG, 0, 0, 1, 5, 0), b""),
        ("a segment beyond 2^64", u32(MSG) + lists(writes=[[overflow]]), None),
        ("too many segments in a Write chunk", u32(MSG) + lists(writes=[[place] * 100]), None),
        ("too many segments in a Reply chunk", u32(MSG) + lists(reply=[place] * 100), None),
        ("too many segments in a Read chunk", u32(MSG) + lists([(at, source)] * 33), None),
        ("too many Read segments", u32(MSG) + lists([(at + 4 * i // 20, source) for i in range(100)]), None),
        ("too many Write chunks", u32(MSG) + lists(writes=[[]] * 40), None),
        ("another XID in the RPC header", u32(MSG) + lists(), lambda xid: call(xid + 1, 100003, 3, 0)),
        ("a message that is shorter than a call", u32(MSG) + lists(), lambda xid: call(xid, 100003, 3, 0)[:20]),
        ("a Call chunk that is shorter than a call", u32(NOMSG) + lists([(0, (source[0], 20, source[2]))]), b""),
        ("more bytes than a call may have", u32(MSG) + lists([(at, (5, 1 << 31, 0))]), with_args),
        ("chunks of a program without a binding", u32(MSG) + lists([(ARGS_AT, source)]), lambda xid: call(xid, 100005, 3, 1)),
    ]:
        xid = next(XIDS)
        if payload is None:
            payload = lambda x: call(x, 100003, 3, 0)
        try:
            c.refused(head, payload(xid) if callable(payload) else payload, xid)
        except Exception as e:
            raise AssertionError("%s: %s" % (what, e)) from e
    expect("RDMA Reads and Writes", (c.reads, c.written), (0, []))


def case_err_chunk_no_reads(c):
    """A client that bears no RDMA Reads (RFC 5666 section 6) has its own Read chunks refused."""
    f = c.create(b"noreads")
    r = c.inline(100417, 1, 1, u32(4096, 4096, 0))
    expect("RDMA Reads", [r.u32() for _ in range(3)][2], 0)
    args, xid = write_args(f, 0, 100), next(XIDS)
    c.refused(u32(MSG) + lists([(ARGS_AT + len(args), c.expose(bytes(100)))]), call(xid, 100003, 3, 7, args), xid)
    expect("RDMA Reads that came", c.reads, 0)


def case_err_chunk_write_chunk(c):
    """The target of a link is longer than its Write chunk: none of it is written."""
    link, place, xid = c.symlink(b"target", b"t" * 100), c.expose(bytes(99), read=False), next(XIDS)
    c.refused(u32(MSG) + lists(writes=[[place]]), call(xid, 100003, 3, 5, opaque(link)), xid)
    expect("RDMA Writes", c.written, [])


def case_err_chunk_after_refusal(c):
    """A call whose memory has cost a connection is refused when it comes again, on another one."""
    args, xid = write_args(c.create(b"costly"), 0, 100), next(XIDS)
    for _ in range(10):  # the server may take the new connection before it is done with the old one
        again = Client(c.address)
        try:
            source = again.expose(bytes(100))
            again.refuses.add(source[0])
            again.refused(u32(MSG) + lists([(ARGS_AT + len(args), source)]), call(xid, 100003, 3, 7, args), xid)
            expect("RDMA Reads that came", again.reads, 0)
            return
        except Ended:
            continue
        finally:
            again.close()
    raise AssertionError("the call is never answered")


def case_plain_err_chunk(c):
    """RDMA_MSGP; replies that fit neither their Reply chunk nor a message; chunk lists that no answer can repeat."""
    xid = next(XIDS)
    c.refused(u32(MSGP, 64, 1000) + lists(), call(xid, 100003, 3, 0), xid)
    small = Client(c.address, bytes.fromhex("f6ab0e1801000000"))  # it takes messages of 1024 bytes
    try:
        read = opaque(small.symlink(b"long", b"t" * 1000))
        for reply in (None, [], [small.expose(bytes(1000), read=False)]):
            xid = next(XIDS)
            small.refused(u32(MSG) + lists(reply=reply), call(xid, 100003, 3, 5, read), xid)
        place, xid = small.expose(bytes(1000), read=False), next(XIDS)  # the answer repeats its 62 segments
        small.refused(u32(MSG) + lists(writes=[[place] * 32, [place] * 30]), call(xid, 100003, 3, 5, read), xid)
        expect("RDMA Writes", small.written, [])
    finally:
        small.close()


def case_plain_done(c):
    """RDMA_DONE is dropped."""
    c.send(u32(next(XIDS), 1, 32, DONE))
    c.null()


def case_two_read_chunks(c):
    """A COMPOUND with three WRITEs, each with a Read chunk; the list is unsorted."""
    f, data = c.create(b"two"), pattern(9002, 9)
    s = Session(c)
    _, _, r = s.chunked(b"two", [op_write(0, data[:1001]), op_write(1001, data[1001:8000]), op_write(8000, data[8000:])])
    for n in (1001, 6999, 1002):
        wrote4(r, n)
    expect("rest", r.rest(), b"")
    expect("file", c.content(f, 9002), data)


def case_two_write_chunks(c):
    """A COMPOUND with three READs: chunk k takes the k-th, also beside an empty result."""
    f, data = c.create(b"reads"), pattern(9002, 10)
    c.fill(f, data)
    s = Session(c)
    places = [c.expose(bytes(n), read=False) for n in (1001, 500, 8001)]
    _, reply, r = s.chunked(b"reads", [op_read(0, 1001), op_read(9002, 500), op_read(1001, 8001)], places)
    expect("Write list", reply.writes, [[places[0]], [(places[1][0], 0, places[1][2])], [places[2]]])
    for eof, n in ((0, 1001), (1, 0), (1, 8001)):
        expect("READ", [r.u32() for _ in range(4)], [25, 0, eof, n])
    expect("rest", r.rest(), b"")
    expect("data", b"".join(bytes(c.memory[p[0]][0]) for p in places), data[:1001] + bytes(500) + data[1001:])


def case_read_and_write_chunks(c):
    """A COMPOUND that writes by two Read chunks, and reads by two Write chunks."""
    f, data = c.create(b"both"), pattern(6001, 11)
    s = Session(c)
    places = [c.expose(bytes(n), read=False) for n in (2999, 3002)]
    _, reply, r = s.chunked(b"both", [op_write(0, data[:3001]), op_read(2, 2999), op_write(3001, data[3001:]), op_read(2999, 3002)], places)
    wrote4(r, 3001)
    expect("READ", [r.u32() for _ in range(4)], [25, 0, 1, 2999])
    wrote4(r, 3000)
    expect("READ", [r.u32() for _ in range(4)], [25, 0, 1, 3002])
    expect("rest", r.rest(), b"")
    expect("first", bytes(c.memory[places[0][0]][0]), data[2:3001])
    expect("second", bytes(c.memory[places[1][0]][0]), data[2999:6001])


def case_read_read_two(c):
    """A COMPOUND with two READs and no chunks: the reply has two Read chunks, at their positions."""
    f, data = c.create(b"readtwo"), pattern(20000, 12)
    c.fill(f, data)
    s = Session(c)
    xid, reply, r = s.chunked(b"readtwo", [op_read(0, 9001), op_read(9001, 10999)])
    expect("READ", [r.u32() for _ in range(4)], [25, 0, 0, 9001])
    first = r.at
    expect("READ", [r.u32() for _ in range(4)], [25, 0, 1, 10999])
    expect("positions", sorted({p for p, _ in reply.reads}), [first, first + 9004 + 16])
    expect("data", b"".join(c.read(g) for _, g in reply.reads), data)
    c.send(u32(xid, 1, 32, DONE))
    c.null()


def case_err_vers(c):
    """Version 9 is answered ERR_VERS with version 1, and the version of the call."""
    xid = next(XIDS)
    c.send(u32(xid, 9, 32, MSG) + lists() + call(xid, 100003, 3, 0))
    answer = struct.unpack(">7I", c.receive())
    expect("answer", answer[:2] + answer[3:], (xid, 9, ERROR, 1, 1, 1))
    c.null()


def main():
    failed = 0
    for name, case in [(k[5:], v) for k, v in globals().items() if k.startswith("case_")]:
        server = 2 if name.startswith("plain_") else 1
        if server >= len(sys.argv):
            continue
        client = None
        try:
            client = Client(sys.argv[server])
            case(client)
            print("ok", name)
        except Exception as e:
            failed = 1
            print("failed %s: %s" % (name, e))
            traceback.print_exc()
        finally:
            if client:
                client.close()
    return failed


if __name__ == "__main__":
    sys.exit(main())
