"""What becomes of the batches of a fetch: compressed ones are unpacked within a bound, and none ends its reader."""

import gzip
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import cramjam
import pytest
from aiokafka import TopicPartition
from aiokafka.codec import snappy_encode
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from spillway.addresses import CLUSTERS, LOAD
from spillway.dead_letters import RECORD_BYTES_MAX, UNREAD_HEADER, UNREAD_KIND_HEADER, LetterReading, StoredRecord
from spillway.kafka.batches import (
    BATCH_RECORDS_MAX,
    PACKED_AT_ONCE_BYTES,
    RECORDS_AT_ONCE,
    UNPACKED_AT_ONCE_BYTES,
    VAIN_AT_ONCE_BYTES,
    KafkaBatches,
)
from spillway.kafka.unpacking import (
    SNAPPY_BLOCKS_MAX,
    UNPACKED_BYTES_MAX,
    UNPACKED_RATIO_MAX,
    UNPACKED_SMALL_BYTES,
    CannotUnpack,
    StatesTooMuch,
    unpack_records,
    unpacked_bytes_bound,
)

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NOW_MS = 1_700_000_000_000
PLACE = TopicPartition("load", 0)
DENSE = random.Random(7).randbytes(UNPACKED_AT_ONCE_BYTES // 2)
"""No codec makes it smaller."""
XERIAL = b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2
HEADER_BYTES, CRC_AT, COUNTED_FROM = 61, 17, 21


def raw_snappy(records: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(records))


def snappy_java_blocks(records: bytes) -> bytes:
    """A block in Java's frame."""
    packed = raw_snappy(records)
    return struct.pack(">i", len(packed)) + packed


def zstd_without_size(records: bytes) -> bytes:
    """As a producer writes zstd that learns of the records one after the other."""
    writer = cramjam.zstd.Compressor(level=3)
    writer.compress(records)
    return bytes(writer.finish())


PACKED_BY: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "snappy in Java's frame": (SNAPPY, snappy_encode),
    "snappy alone": (SNAPPY, raw_snappy),
    "lz4": (LZ4, lambda records: bytes(cramjam.lz4.compress(records))),
    "zstd": (ZSTD, lambda records: bytes(cramjam.zstd.compress(records))),
    "zstd in parts": (ZSTD, zstd_without_size),
}
CODECS = pytest.mark.parametrize(("codec", "pack"), PACKED_BY.values(), ids=PACKED_BY)


def make_batch(
    offset: int, values: Sequence[bytes], codec: int = NONE, pack: Callable[[bytes], bytes] = bytes
) -> bytes:
    """As a broker keeps it: one record for each value, the first at the offset."""
    builder = DefaultRecordBatchBuilder(2, NONE, False, -1, -1, -1, 1 << 30)
    for delta, value in enumerate(values):
        builder.append(delta, NOW_MS + delta, b"shop/web", value, [("fleet", b"f1"), ("empty", None)])
    return make_stored_batch(bytes(builder.build()), offset, codec, pack)


def batch_of_few_bytes(offset: int, count: int, codec: int, pack: Callable[[bytes], bytes]) -> bytes:
    """As many records as that, of some ten bytes each."""
    builder = DefaultRecordBatchBuilder(2, NONE, False, -1, -1, -1, 1 << 30)
    for delta in range(count):
        builder.append(delta, NOW_MS, None, b"", [])
    return make_stored_batch(bytes(builder.build()), offset, codec, pack)


def make_stored_batch(plain: bytes, offset: int, codec: int, pack: Callable[[bytes], bytes]) -> bytes:
    built = bytearray(plain[:HEADER_BYTES] + pack(plain[HEADER_BYTES:]))
    struct.pack_into(">qi", built, 0, offset, len(built) - 12)
    struct.pack_into(">h", built, COUNTED_FROM, codec)
    struct.pack_into(">I", built, CRC_AT, calc_crc32c(bytes(built[COUNTED_FROM:])))
    return bytes(built)


def read_fetched_bytes(fetched_bytes: bytes, offset: int = 0) -> tuple[list[Any], int]:
    """The records that aiokafka gives of a fetch from the offset on, and from where it fetches next."""
    found = PartitionRecords(PLACE, KafkaBatches(fetched_bytes), [], offset, None, None, True, 0)
    return list(found), found.next_fetch_offset


def unread_kind_of_each_record(records: Sequence[Any]) -> list[str]:
    """By offset in order: "" for a record that was read."""
    return [dict(record.headers).get(UNREAD_KIND_HEADER, b"").decode() for record in records]


@CODECS
def test_compressed_records_are_those_that_were_written(codec: int, pack: Callable[[bytes], bytes]) -> None:
    values = [b"one", b"", DENSE[:200_000]]
    plain, _ = read_fetched_bytes(make_batch(7, values))
    assert read_fetched_bytes(make_batch(7, values, codec, pack)) == (plain, 10)
    assert [record.value for record in plain] == values
    assert read_fetched_bytes(make_batch(7, [], codec, pack), 7)[0] == []


@CODECS
def test_records_beyond_the_bound_are_one_unreadable_record(codec: int, pack: Callable[[bytes], bytes]) -> None:
    """Where their batch ends; what stands before and behind it is read."""
    before, behind = make_batch(0, [b"a", b"b"]), make_batch(4, [b"c"])
    bomb = make_batch(2, [bytes(UNPACKED_BYTES_MAX), b"x"], codec, pack)
    assert len(bomb) < UNPACKED_BYTES_MAX / 10
    records, end = read_fetched_bytes(before + bomb + behind)
    assert [(record.offset, record.value) for record in records] == [(0, b"a"), (1, b"b"), (3, None), (4, b"c")]
    assert (unread_kind_of_each_record(records), end) == (["", "", "size", ""], 5)
    bound = unpacked_bytes_bound(len(bomb) - HEADER_BYTES)
    assert f"within {bound} bytes".encode() in dict(records[2].headers)[UNREAD_HEADER]
    assert records[2].timestamp == NOW_MS + 1


@CODECS
def test_as_many_bytes_as_the_bound_are_read(codec: int, pack: Callable[[bytes], bytes]) -> None:
    assert unpack_records(codec, pack(b"x" * 1000), 1000) == b"x" * 1000
    with pytest.raises(CannotUnpack):
        unpack_records(codec, pack(b"x" * 1001), 1000)


@CODECS
@pytest.mark.parametrize("spoil", ["cut off", "garbage", "something behind"])
def test_what_no_codec_reads_ends_no_reader(codec: int, pack: Callable[[bytes], bytes], spoil: str) -> None:
    def spoiled(records: bytes) -> bytes:
        packed = pack(records)
        return {"cut off": packed[:-9], "garbage": b"\xff" * 40, "something behind": packed + b"\xff" * 9}[spoil]

    records, end = read_fetched_bytes(make_batch(3, [b"a" * 100, b"b" * 100], codec, spoiled))
    assert (unread_kind_of_each_record(records), end) == (["size"], 5)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        pytest.param(GZIP, gzip.compress(b"a") * 2, id="gzip of two members"),
        pytest.param(5, b"a", id="a codec that nobody knows"),
        pytest.param(SNAPPY, b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2 + b"\xff" * 4, id="a block of less than nothing"),
        pytest.param(SNAPPY, b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2 + b"\0\0\0\x09a", id="a block beyond the end"),
        pytest.param(SNAPPY, b"\xff\xff\xff\xff\x0f", id="a block that promises 4 GiB"),
        pytest.param(SNAPPY, XERIAL + b"\0\0\0\1\0" + snappy_java_blocks(b"a"), id="an empty block"),
        pytest.param(SNAPPY, XERIAL + snappy_java_blocks(b"a") * (SNAPPY_BLOCKS_MAX + 1), id="too many blocks"),
    ],
)
def test_what_says_of_itself_what_is_not_so_is_refused(codec: int, packed: bytes) -> None:
    with pytest.raises(CannotUnpack):
        unpack_records(codec, packed)


def test_as_many_blocks_as_the_bound_are_read() -> None:
    assert unpack_records(SNAPPY, XERIAL + snappy_java_blocks(b"a") * SNAPPY_BLOCKS_MAX) == b"a" * SNAPPY_BLOCKS_MAX


def make_legacy_batch(magic: int, codec: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset in range(3):
        builder.append(offset, NOW_MS, b"k", bytes(1000))
    return bytes(builder.build())


@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_records_of_old_versions_are_refused_and_others_are_read(magic: int) -> None:
    """They may be compressed twice."""
    records, end = read_fetched_bytes(make_legacy_batch(magic, GZIP) + make_batch(3, [b"a"]))
    assert unread_kind_of_each_record(records)[0] == "size"
    rest, end = (records[1:], end) if len(records) > 1 else read_fetched_bytes(make_batch(3, [b"a"]), end)
    assert (unread_kind_of_each_record(rest), end) == ([""], 4)
    assert [record.value for record in read_fetched_bytes(make_legacy_batch(magic, NONE))[0]] == [bytes(1000)] * 3


def test_once_enough_is_unpacked_the_rest_is_fetched_again() -> None:
    """Else thousands of batches, each within its bound, would be in memory together."""
    sent = [make_batch(offset, [DENSE], ZSTD, zstd_without_size) for offset in range(5)]
    assert record_counts_of_fetches(sent) == [2, 2, 1]


def test_once_enough_compressed_bytes_are_read_the_rest_is_fetched_again() -> None:
    """Also where little comes of them: gzip may have any number of blocks that hold nothing."""

    def padded(records: bytes) -> bytes:
        packer = zlib.compressobj(wbits=31)
        start = packer.compress(records) + packer.flush(zlib.Z_FULL_FLUSH)
        return start + b"\0\0\0\xff\xff" * (PACKED_AT_ONCE_BYTES // 10) + packer.flush()

    assert record_counts_of_fetches([make_batch(offset, [b"a"], GZIP, padded) for offset in range(5)]) == [2, 2, 1]


def make_bomb_batches(value: bytes, codec: int, pack: Callable[[bytes], bytes]) -> list[bytes]:
    """Thirty batches that are refused, and a record behind them."""
    bomb = bytearray(make_batch(0, [value], codec, pack))
    sent = []
    for offset in range(30):
        struct.pack_into(">q", bomb, 0, offset)
        sent.append(bytes(bomb))
    return [*sent, make_batch(30, [b"a"])]


def record_counts_of_fetches(sent: Sequence[bytes]) -> list[int]:
    """How many records each fetch gives, where each batch has one offset."""
    given, at = [], 0
    while at < len(sent):
        records, at = read_fetched_bytes(b"".join(sent[at:]), at)
        given.append(len(records))
    return given


@pytest.mark.parametrize("name", sorted(PACKED_BY.keys() - {"snappy alone", "snappy in Java's frame"}))
def test_small_batches_that_become_large_end_no_fetch(name: str) -> None:
    """Even where each is within the bound of all batches: memory would hold two of them, and the rest be dropped."""
    assert record_counts_of_fetches(make_bomb_batches(bytes(UNPACKED_AT_ONCE_BYTES // 2), *PACKED_BY[name])) == [31]


@pytest.mark.parametrize("name", ["gzip", "zstd", "zstd in parts"])
def test_small_batches_beyond_the_largest_bound_end_no_fetch(name: str) -> None:
    """Each leaves nothing in memory. Else all that is behind each one would be fetched again."""
    assert record_counts_of_fetches(make_bomb_batches(bytes(UNPACKED_BYTES_MAX), *PACKED_BY[name])) == [31]


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_batches_that_state_too_large_a_size_end_no_fetch(name: str) -> None:
    """However large they are: none costs any time."""
    assert record_counts_of_fetches(
        make_bomb_batches(DENSE[:100_000] + bytes(UNPACKED_BYTES_MAX), *PACKED_BY[name])
    ) == [31]


def test_some_large_batches_that_do_not_state_their_size_end_a_fetch() -> None:
    """Each costs milliseconds, in which nothing else has its turn; one alone must not end a fetch."""
    given = record_counts_of_fetches(
        make_bomb_batches(DENSE[:100_000] + bytes(UNPACKED_BYTES_MAX), *PACKED_BY["zstd in parts"])
    )
    most = VAIN_AT_ONCE_BYTES // UNPACKED_BYTES_MAX
    assert given == [most] * (30 // most) + [30 % most + 1]


@pytest.mark.parametrize(
    ("packed", "bound"),
    [
        (0, UNPACKED_SMALL_BYTES),
        (UNPACKED_SMALL_BYTES // UNPACKED_RATIO_MAX, UNPACKED_SMALL_BYTES),
        (1000, 1000 * UNPACKED_RATIO_MAX),
        (UNPACKED_BYTES_MAX, UNPACKED_BYTES_MAX),
    ],
)
def test_a_batch_may_become_some_times_as_large(packed: int, bound: int) -> None:
    assert unpacked_bytes_bound(packed) == bound


SIZE_BYTES = (1 << 40).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        pytest.param(GZIP, gzip.compress(bytes(1001)), id="gzip"),
        pytest.param(SNAPPY, raw_snappy(bytes(1001)), id="snappy"),
        pytest.param(LZ4, b"\x04\x22\x4d\x18" + b"\x68\x40" + SIZE_BYTES, id="lz4"),
        pytest.param(ZSTD, b"\x28\xb5\x2f\xfd" + b"\xc0\x58" + SIZE_BYTES, id="zstd with a window"),
        pytest.param(ZSTD, b"\x28\xb5\x2f\xfd" + b"\xe3" + b"\0\0\0\1" + SIZE_BYTES, id="zstd with a dictionary"),
        pytest.param(ZSTD, bytes(cramjam.zstd.compress(bytes(1001))), id="zstd of one segment"),
    ],
)
def test_a_stated_size_beyond_the_bound_is_refused_before_anything_is_unpacked(codec: int, packed: bytes) -> None:
    with pytest.raises(StatesTooMuch, match="no records within 1000 bytes: it states"):
        unpack_records(codec, packed, 1000)


@pytest.mark.parametrize("name", [None, *PACKED_BY])
def test_a_batch_of_more_records_than_the_bound_is_one_unreadable_record(name: str | None) -> None:
    """However few bytes each has: no other partition has its turn until all of them are read."""
    codec, pack = (NONE, bytes) if name is None else PACKED_BY[name]
    too_many = batch_of_few_bytes(1, BATCH_RECORDS_MAX + 1, codec, pack)
    records, end = read_fetched_bytes(make_batch(0, [b"a"]) + too_many + make_batch(BATCH_RECORDS_MAX + 2, [b"b"]))
    assert (unread_kind_of_each_record(records), end) == (["", "size", ""], BATCH_RECORDS_MAX + 3)
    assert records[1].offset == BATCH_RECORDS_MAX + 1
    reason = f"{BATCH_RECORDS_MAX + 1} records: expected at most {BATCH_RECORDS_MAX}"
    assert reason in dict(records[1].headers)[UNREAD_HEADER].decode()


@pytest.mark.parametrize("name", [None, "zstd in parts"])
def test_once_enough_records_were_read_the_rest_is_fetched_again(name: str | None) -> None:
    """Else batches within the bound would keep the other partitions waiting together. So many in one batch are read."""
    codec, pack = (NONE, bytes) if name is None else PACKED_BY[name]
    half = RECORDS_AT_ONCE // 2
    sent = [batch_of_few_bytes(number * half, half, codec, pack) for number in range(3)]
    records, end = read_fetched_bytes(b"".join(sent))
    assert (len(records), end) == (RECORDS_AT_ONCE, RECORDS_AT_ONCE)
    assert len(read_fetched_bytes(batch_of_few_bytes(0, BATCH_RECORDS_MAX, codec, pack))[0]) == BATCH_RECORDS_MAX


def stored_record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes]) -> StoredRecord:
    return StoredRecord(LOAD.name, 3, 0, key, value, headers)


def letters_of_records(*of: StoredRecord) -> list[tuple[str, str]]:
    reading = LetterReading("f1", "hpa-1", 100)
    assert reading.read_records(of, 0.0) == ()
    return [(letter.writer, letter.reason.partition(":")[0]) for letter in reading.pending]


def test_a_record_that_only_compression_could_bring_is_its_writers_dead_letter() -> None:
    large = stored_record(b"k", bytes(RECORD_BYTES_MAX), ("fleet", b"f1"), ("ce_source", b"shop"))
    headers = 32 + len("fleetf1") + 32 + len("ce_sourceshop")
    assert letters_of_records(large, large) == [("source shop", f"{RECORD_BYTES_MAX + 1 + headers} bytes")]


def test_of_what_cannot_be_taken_apart_each_kind_has_a_letter() -> None:
    """A name of a header that nobody can read does not hide a batch that is too large; other words are no kinds."""
    found = letters_of_records(
        *(
            stored_record(None, None, (UNREAD_KIND_HEADER, kind), (UNREAD_HEADER, reason))
            for kind, reason in ((b"size", b"a"), (b"headers", b"b"), (b"headers", b"c"), (b"any", b"d"))
        )
    )
    assert found == [("partition 3", "a"), ("partition 3", "b")]


def test_on_a_topic_of_ours_it_is_a_letter_too() -> None:
    reading = LetterReading("f1", "planner-1", 100)
    reading.read_records([StoredRecord(CLUSTERS.name, 0, 5, None, None, ((UNREAD_HEADER, b"why"),))], 0.0)
    assert [(letter.offset, letter.reason) for letter in reading.pending] == [(5, "why")]
