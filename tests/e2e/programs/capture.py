"""Keeps what a listener on this host's network reads: capture.py FILE INTERFACE

Says "listening" on standard output, and goes on until its input ends. FILE then has, for each direction of each TCP
connection, a line "from-address port to-address port who size" and so many bytes, in the order of the stream; who is
"caller" for the end that has asked for the connection, else "called". One that was only asked for has no bytes.
"""

import os
import select
import socket
import struct
import sys

ETH_P_ALL = 3
SYN, ACK = 2, 16
SO_RCVBUFFORCE = 33


def segment_of(packet):
    """(from, port, to, port), sequence number, flags and bytes of an Ethernet frame with TCP over IPv4; else None."""
    if len(packet) < 54 or packet[12:14] != b"\x08\x00" or packet[23] != 6:
        return None
    ip = packet[14:14 + struct.unpack_from("!H", packet, 16)[0]]  # what follows it fills up a short frame
    tcp = ip[(ip[0] & 15) * 4:]
    ports = struct.unpack_from("!HH", tcp)
    key = (socket.inet_ntoa(ip[12:16]), ports[0], socket.inet_ntoa(ip[16:20]), ports[1])
    return key, struct.unpack_from("!I", tcp, 4)[0], tcp[13], tcp[(tcp[12] >> 4) * 4:]


def stream_of(segments):
    """Bytes by their sequence numbers, from the stream's beginning or else the first that was seen."""
    start = min((sequence + 1 for sequence, flags, _ in segments if flags & SYN), default=min(s for s, _, _ in segments))
    data = bytearray()
    for offset, part in sorted(((sequence - start) % 2**32, part) for sequence, _, part in segments if part):
        missing = max(0, offset - len(data))
        data += b"\0" * (missing if missing < 2**20 else 0)
        data[offset:offset + len(part)] = part
    return bytes(data)


def main(path, interface):
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    listener.bind((interface, 0))
    listener.setblocking(False)
    print("listening", flush=True)
    streams = {}
    is_over = False
    while not is_over:
        ready, _, _ = select.select([listener, 0], [], [])
        is_over = 0 in ready and not os.read(0, 1)
        while True:
            try:
                found = segment_of(listener.recv(1 << 17))
            except BlockingIOError:
                break
            if found:
                streams.setdefault(found[0], []).append(found[1:])
    with open(path, "wb") as out:
        for key, segments in streams.items():
            who = "caller" if any(flags & (SYN | ACK) == SYN for _, flags, _ in segments) else "called"
            data = stream_of(segments)
            out.write(f"{' '.join(map(str, key))} {who} {len(data)}\n".encode())
            out.write(data)


main(*sys.argv[1:])
