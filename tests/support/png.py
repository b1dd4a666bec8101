"""Reads what cairo writes: PNG of eight bits a channel, not interlaced (ISO/IEC 15948)."""

import struct
import zlib


def read_png(data):
    """Width, height, and pixel(x, y) -> (red, green, blue)."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, header = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        (checksum,) = struct.unpack(">I", data[at + 8 + length:at + 12 + length])
        assert zlib.crc32(kind + body) == checksum
        at += 12 + length
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
    assert kind == b"IEND"
    width, height, depth, color, *rest = header
    assert depth == 8 and color in (2, 6) and rest == [0, 0, 0]
    channels = 3 if color == 2 else 4
    rows = list(unfiltered(zlib.decompress(packed), width * channels, height, channels))

    def pixel(x, y):
        return tuple(rows[y][x * channels:x * channels + 3])

    return width, height, pixel


def unfiltered(raw, stride, height, step):
    assert len(raw) == height * (stride + 1)
    above = bytearray(stride)
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride if kind else 0):
            left = row[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            row[i] = (row[i] + predicted(kind, left, above[i], corner)) & 255
        yield row
        above = row


def predicted(kind, left, up, corner):
    if kind == 1:
        return left
    if kind == 2:
        return up
    if kind == 3:
        return (left + up) // 2
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))
