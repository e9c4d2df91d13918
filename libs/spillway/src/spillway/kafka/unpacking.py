"""Decompresses the records of a batch up to a limit. aiokafka decompresses a batch whole, however large it becomes.

Each codec writes into a buffer of the limit's size, or states its size beforehand. So no batch takes more memory. Most
codecs can state the size, and a batch that states too much is refused before it is decompressed.
"""

import struct
import zlib
from typing import Final

import cramjam

from spillway.dead_letters import RECORD_BYTES_MAX

UNPACKED_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""The most bytes of the decompressed records of one batch.

A compressed batch on our topics has at most max.message.bytes, which is RECORD_BYTES_MAX. A producer fills a batch up
to batch.size of uncompressed bytes, or up to an estimate by the compression ratio so far. A batch.size of 1 MiB whose
records compress to an eighth reaches this bound. With the default of 16 KiB no batch does (UNPACKED_RATIO_MAX). A
reader holds at most twice this for each of its partitions (batches.py).
"""
UNPACKED_RATIO_MAX: Final = 200
"""The most decompressed bytes of a batch for each compressed byte, if there are more than UNPACKED_SMALL_BYTES.

Otherwise batches of a hundred bytes, each within UNPACKED_BYTES_MAX, would fill a reader's memory as fast as two
megabytes do. Thousands of records of 300 bytes with an id of their own shrink to a twelfth with zstd. If all have the
same value and none has an id, they shrink to a hundred-and-fortieth.
"""
UNPACKED_SMALL_BYTES: Final = 64 * 1024
"""The decompressed bytes that any batch may have. Producers fill a batch up to 16 KiB by default."""
CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
"""Codecs by the three lowest bits of a batch's attributes; 0 is no compression."""

_GZIP_WINDOW: Final = 31
"""The window bits that zlib needs for the longest window with gzip's header and checksum."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
"""The size of the header that Java's producers put before blocks of snappy: the magic, its version, and the oldest
version that can read it."""
SNAPPY_BLOCKS_MAX: Final = 1_000
"""The most blocks of snappy in Java's frame. Java's producers write blocks of 32 KiB: 256 for UNPACKED_BYTES_MAX.

A block costs some microseconds however small it is, and the event loop does nothing else meanwhile.
"""
_BLOCK_BYTES: Final = struct.Struct(">i")
_GZIP_SIZE: Final = struct.Struct("<I")
"""The last field of a gzip member: the decompressed size, modulo 4 GiB."""
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_STATES_SIZE: Final = 0b1000
_LZ4_SIZE: Final = struct.Struct("<4xBxQ")
"""The first fields of a frame of lz4: the magic, flags, the largest block, and the decompressed size if a flag says
so."""
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SINGLE_SEGMENT: Final = 0b100000
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_ZSTD_SIZE_BYTES: Final = (0, 2, 4, 8)
_ZSTD_TWO_BYTES_FROM: Final = 256
"""zstd subtracts this number from a size that it states in two bytes."""


class CannotUnpack(ValueError):
    """Raised if compressed records are invalid for their codec, or larger than the bound."""


class StatesTooMuch(CannotUnpack):
    """Raised if the compressed records state a size beyond the bound. Nothing was decompressed then."""


def unpacked_bytes_bound(packed_bytes: int) -> int:
    """Returns the most bytes to which a batch of so many compressed bytes may be decompressed."""
    return min(UNPACKED_BYTES_MAX, max(UNPACKED_SMALL_BYTES, UNPACKED_RATIO_MAX * packed_bytes))


def unpack_records(codec: int, packed: bytes, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """Returns the decompressed records of a batch. codec: from the batch's attributes. Raises CannotUnpack.

    If the batch states a size beyond bytes_max, this is StatesTooMuch.
    """
    if not packed:  # Compaction has removed all records of the batch.
        return b""
    name = CODECS.get(codec, str(codec))
    beyond = f"codec {name}, no records within {bytes_max} bytes"
    try:
        stated = _stated_size(name, packed)
        if stated > bytes_max:
            raise StatesTooMuch(f"{beyond}: it states {stated}")
        match name:
            case "gzip":
                return _unpack_gzip(packed, bytes_max)
            case "snappy":
                return _unpack_snappy(packed)
            case "lz4" | "zstd":
                # cramjam fills the buffer in steps, and raises an error if there is more.
                buffer = bytearray(bytes_max)
                length = getattr(cramjam, name).decompress_into(packed, buffer)
                return bytes(memoryview(buffer)[:length])
        raise CannotUnpack(f"expected one of {', '.join(CODECS.values())}")
    except StatesTooMuch:
        raise
    except (CannotUnpack, zlib.error, struct.error, cramjam.DecompressionError) as error:
        raise CannotUnpack(f"{beyond}: {error}") from error


def _stated_size(name: str, packed: bytes) -> int:
    """Returns the decompressed size that the batch states; 0 if it states none. The real size may be larger.

    Raises CannotUnpack, struct.error or DecompressionError for a block of snappy without a size, and for an empty block
    among several.
    """
    match name:
        case "gzip" if len(packed) >= _GZIP_SIZE.size:
            return int(_GZIP_SIZE.unpack_from(packed, len(packed) - _GZIP_SIZE.size)[0])
        case "snappy":
            sizes = [cramjam.snappy.decompress_raw_len(block) for block in _snappy_blocks(packed)]
            if 0 in sizes and len(sizes) > 1:
                raise CannotUnpack("an empty block")
            return sum(sizes)
        case "lz4" if packed.startswith(_LZ4_MAGIC) and len(packed) >= _LZ4_SIZE.size:
            flags, size = _LZ4_SIZE.unpack_from(packed)
            return int(size) if flags & _LZ4_STATES_SIZE else 0
        case "zstd" if packed.startswith(_ZSTD_MAGIC) and len(packed) > len(_ZSTD_MAGIC):
            return _zstd_size(packed)
    return 0


def _zstd_size(packed: bytes) -> int:
    """Returns the size that the first frame of zstd states, or 0. Source: RFC 8878, section 3.1.1.1."""
    flags = packed[len(_ZSTD_MAGIC)]
    single = bool(flags & _ZSTD_SINGLE_SEGMENT)
    # A code of 0 means no size, but one byte of size in a frame of a single segment.
    size_bytes = _ZSTD_SIZE_BYTES[flags >> 6] or int(single)
    begin = len(_ZSTD_MAGIC) + 1 + int(not single) + _ZSTD_DICTIONARY_BYTES[flags & 0b11]
    stated = int.from_bytes(packed[begin : begin + size_bytes], "little")
    return stated + _ZSTD_TWO_BYTES_FROM if size_bytes == 2 else stated


def _unpack_gzip(packed: bytes, bytes_max: int) -> bytes:
    """Decompresses one gzip member, as producers write it. Further members would each cost a copy of the remaining
    bytes."""
    reader = zlib.decompressobj(_GZIP_WINDOW)
    records = reader.decompress(packed, bytes_max + 1)
    if len(records) > bytes_max:
        raise CannotUnpack("there are more")
    if not reader.eof or reader.unused_data:
        raise CannotUnpack("it is cut off, or bytes follow its first gzip member")
    return records


def _unpack_snappy(packed: bytes) -> bytes:
    """Decompresses one snappy block, or the blocks in Java's frame. Each block states its decompressed size."""
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in _snappy_blocks(packed))


def _snappy_blocks(packed: bytes) -> list[bytes]:
    return _split_java_blocks(packed) if packed.startswith(_XERIAL_MAGIC) else [packed]


def _split_java_blocks(packed: bytes) -> list[bytes]:
    blocks: list[bytes] = []
    at = _XERIAL_HEADER_BYTES
    while at < len(packed):
        (length,) = _BLOCK_BYTES.unpack_from(packed, at)
        at += _BLOCK_BYTES.size
        if len(blocks) == SNAPPY_BLOCKS_MAX:
            raise CannotUnpack(f"more than {SNAPPY_BLOCKS_MAX} blocks")
        if not 0 < length <= len(packed) - at:
            raise CannotUnpack(f"a block of {length} bytes where {len(packed) - at} are left")
        blocks.append(packed[at : at + length])
        at += length
    return blocks
