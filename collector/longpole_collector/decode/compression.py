"""Undoing ``Content-Encoding``, in bounded memory whatever the sender claims."""

import zlib
from enum import IntEnum

from longpole.errors import BadInput

_STEP_BYTES = 1 << 20
_GZIP_WBITS = 31
_RAW_WBITS = -15


class Compression(IntEnum):
    """How a body is compressed; the number is part of the log's format."""

    IDENTITY = 0
    GZIP = 1
    DEFLATE = 2


class TooLarge(BadInput):
    """A body is larger than the limit, before or after decompression."""


def inflate(body: bytes, compression: Compression, limit_bytes: int) -> bytes:
    """The body, decompressed.

    Args:
        body: bytes as received; empty stays empty.
        compression: how it is compressed.
        limit_bytes: most bytes the result may have; memory stays within about twice that.

    Raises:
        TooLarge: the result would be larger than the limit.
        BadInput: the compressed data are broken or cut off.
    """
    if compression is Compression.IDENTITY:
        if len(body) > limit_bytes:
            raise TooLarge(f"body of {len(body)} bytes: at most {limit_bytes} are taken")
        return body
    wbits = _GZIP_WBITS
    if compression is Compression.DEFLATE:
        wbits = zlib.MAX_WBITS if _has_zlib_header(body) else _RAW_WBITS
    pieces: list[bytes] = []
    size = 0
    rest = body
    while rest:  # one turn a gzip member; deflate has one
        stream = zlib.decompressobj(wbits)
        while not stream.eof:
            try:
                piece = stream.decompress(rest, _STEP_BYTES)
            except zlib.error as error:
                raise BadInput(f"broken {compression.name.lower()} body: {error}") from error
            size += len(piece)
            if size > limit_bytes:
                raise TooLarge(f"body decompresses to more than {limit_bytes} bytes")
            pieces.append(piece)
            rest = stream.unconsumed_tail
            if not piece and not rest and not stream.eof:
                raise BadInput(f"{compression.name.lower()} body is cut off")
        rest = stream.unused_data
    return b"".join(pieces)


def _has_zlib_header(body: bytes) -> bool:
    """RFC 9110 says zlib format; some senders leave the header out (RFC 1950, section 2.2)."""
    return len(body) > 1 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
