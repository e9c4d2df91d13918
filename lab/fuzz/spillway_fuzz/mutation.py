"""Mutates valid inputs: bytes, JSON, protobuf messages. Only a Random decides how, so a number identifies an input."""

import copy
import json
import math
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

BYTES_MAX: Final = 1024 * 1024
"""The most bytes of a mutated input. Targets make large inputs themselves."""
NESTED: Final = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}nested\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}"
"""A placeholder for many nested lists, which a tree cannot hold."""

ODD_TEXTS: Final = (
    "", " ", "\x00", "\n", "/", "a/b", "..", "a" * 64, "a" * 254, "a" * 5_000, "ü", "\N{GRINNING FACE}", "A_b",
    "0", "-1", "1e400", "0x10", "1" * 400, "1" * 5_000, "²", "١٢", "NaN", "100%", "-100%", "1Ei", "1e18Ei",
    "9" * 30 + "Ei", "1m", "1n", "9223372036854775808", "true", "null", "2026-11-22T09:00:00Z",
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-02-30T00:00:00Z", "1h1m", "9" * 400 + "h",
    "http://[::1", "own-1", "shop", "web",
)  # fmt: skip
ODD_NUMBERS: Final = (
    0, 1, -1, 2, 100, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64,
    10**30, 10**400, 0.5, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
ODD_VALUES: Final[tuple[Any, ...]] = (
    *ODD_TEXTS, *ODD_NUMBERS, None, True, False, [], {}, [[]], [None], [""], [{}], {"": None}, {"a": {"a": []}},
    "\ud800", NESTED,
)  # fmt: skip
_VARINTS: Final = (
    b"\x00",
    b"\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10 + b"\x01",
    b"\x80" * 12,
)


# ── Bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def mutated_bytes(content: bytes, chance: Random) -> bytes:
    """Returns the content with one to a few changes."""
    for _ in range(_small_count(chance)):
        content = chance.choice(_BYTE_CHANGES)(content, chance)
    return content[:BYTES_MAX]


def random_bytes(chance: Random, size_max: int = 200) -> bytes:
    return chance.randbytes(chance.randrange(size_max))


def _random_span(content: bytes, chance: Random) -> tuple[int, int]:
    first = chance.randrange(len(content) + 1)
    return first, min(len(content), first + int(chance.expovariate(0.1)))


def _flip_bit(content: bytes, chance: Random) -> bytes:
    if not content:
        return b"\x01"
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


def _overwrite_bytes(content: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    put = chance.choice((bytes([chance.randrange(256)]), b"\x00", b"\xff", b"\xff\xff\xff\xff", *_VARINTS))
    return content[:at] + put + content[at + len(put) :]


def _insert_bytes(content: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.choice((random_bytes(chance, 16), *_VARINTS)) + content[at:]


def _delete_span(content: bytes, chance: Random) -> bytes:
    first, last = _random_span(content, chance)
    return content[:first] + content[last:]


def _repeat_span(content: bytes, chance: Random) -> bytes:
    first, last = _random_span(content, chance)
    times = chance.choice((2, 2, 2, 10, 1000))
    return content[:last] + content[first:last] * times + content[last:]


def _move_span(content: bytes, chance: Random) -> bytes:
    first, last = _random_span(content, chance)
    rest, at = content[:first] + content[last:], chance.randrange(len(content) + 1)
    return rest[:at] + content[first:last] + rest[at:]


def _cut_end(content: bytes, chance: Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


_BYTE_CHANGES: Final = (
    _flip_bit,
    _flip_bit,
    _overwrite_bytes,
    _overwrite_bytes,
    _insert_bytes,
    _delete_span,
    _repeat_span,
    _move_span,
    _cut_end,
)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def mutated_json(tree: Any, chance: Random) -> str:
    """Returns the tree with one to a few changes, as text. Sometimes the text itself is changed, too."""
    text = json.dumps(mutated_tree(tree, chance))
    if json.dumps(NESTED) in text:
        depth = chance.choice((10, 60, 100, 1_000, 50_000))
        opened, closed = chance.choice((("[", "]"), ('{"a":', "}")))
        nested = opened * depth + "1" + closed * depth
        most = max(1, BYTES_MAX // len(nested))
        text = text.replace(json.dumps(NESTED), nested, most).replace(json.dumps(NESTED), "1")
    if chance.random() < 0.05:
        text = mutated_bytes(text.encode(), chance).decode(errors="replace")
    return text


def mutated_tree(tree: Any, chance: Random) -> Any:
    for _ in range(_small_count(chance)):
        text = json.dumps(tree)
        if len(text) > BYTES_MAX:
            break
        tree = json.loads(text)  # So no two places share an object, and a grown value grows only once.
        places = list(_places_in_tree(tree))
        if not places:
            return copy.deepcopy(chance.choice(ODD_VALUES))
        holder, key = chance.choice(places)
        chance.choice(_TREE_CHANGES)(holder, key, chance, places)
    return tree


def _places_in_tree(tree: Any) -> Any:
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        pairs = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for key, value in pairs:
            yield holder, key
            if isinstance(value, dict | list):
                waiting.append(value)


def _put_odd_value(holder: Any, key: Any, chance: Random, _: Any) -> None:
    holder[key] = copy.deepcopy(chance.choice(ODD_VALUES))  # A copy, so that inputs do not change each other.


def _drop_entry(holder: Any, key: Any, _: Random, __: Any) -> None:
    if isinstance(holder, dict):
        holder.pop(key, None)
    elif key < len(holder):
        del holder[key]


def _rename_key(holder: Any, key: Any, chance: Random, places: Any) -> None:
    names = [name for _, name in places if isinstance(name, str)] + list(ODD_TEXTS)
    if isinstance(holder, dict) and key in holder:
        holder[chance.choice(names)] = holder.pop(key)


def _put_other_value(holder: Any, key: Any, chance: Random, places: Any) -> None:
    """Puts in a value from another place of the tree, whose kind is valid there."""
    other, name = chance.choice(places)
    with_value = other.get(name) if isinstance(other, dict) else (other[name] if name < len(other) else None)
    if isinstance(holder, dict) or key < len(holder):
        holder[key] = json.loads(json.dumps(with_value))


def _grow_value(holder: Any, key: Any, chance: Random, _: Any) -> None:
    """Puts in a list or an object with many entries."""
    value = holder.get(key) if isinstance(holder, dict) else (holder[key] if key < len(holder) else None)
    times = chance.choice((2, 3, 70, 1_500))
    if isinstance(value, list | dict | str):
        times = min(times, 1 + BYTES_MAX // len(json.dumps(value)))
    if isinstance(value, list) and value:
        value.extend(value[chance.randrange(len(value))] for _ in range(times))
    elif isinstance(value, dict) and value:
        one = chance.choice(list(value.values()))
        value.update((f"k{number}", one) for number in range(times))
    elif isinstance(value, str) and (isinstance(holder, dict) or key < len(holder)):
        holder[key] = value * times


_TREE_CHANGES: Final = (
    _put_odd_value,
    _put_odd_value,
    _put_odd_value,
    _drop_entry,
    _rename_key,
    _put_other_value,
    _put_other_value,
    _grow_value,
)


# ── Protobuf ────────────────────────────────────────────────────────────────────────────────────────────────────────

_INTEGERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


def mutated_message(message: Message, chance: Random) -> bytes:
    """Returns the message with one to a few changed fields, as bytes. Sometimes mutates the bytes, too. Modifies it."""
    for _ in range(_small_count(chance)):
        if message.ByteSize() < BYTES_MAX:
            _change_message(message, chance)
    content = message.SerializeToString()
    return mutated_bytes(content, chance) if chance.random() < 0.2 else content


def _change_message(message: Message, chance: Random) -> None:
    fields: Any = message.DESCRIPTOR.fields
    if not fields:
        return
    field = chance.choice(fields)
    if field.is_repeated:
        _change_repeated_field(message, field, chance)
    elif field.message_type is not None:
        if chance.random() < 0.2:
            message.ClearField(field.name)
        else:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _change_message(inner, chance)
    else:
        setattr(message, field.name, _odd_scalar(field, chance, getattr(message, field.name)))


def _change_repeated_field(message: Message, field: Any, chance: Random) -> None:
    repeated = getattr(message, field.name)
    how = chance.random()
    if how < 0.2 and len(repeated):
        del repeated[chance.randrange(len(repeated))]
    elif field.message_type is not None:
        if how < 0.5 or not len(repeated):
            repeated.add()
        if how > 0.95:
            one = copy.deepcopy(repeated[chance.randrange(len(repeated))])
            for _ in range(min(chance.choice((2, 100, 3_000)), BYTES_MAX // max(1, one.ByteSize()))):
                repeated.add().CopyFrom(one)  # `extend` with messages sometimes ends the process.
        _change_message(repeated[chance.randrange(len(repeated))], chance)
    else:
        one, times = _odd_scalar(field, chance, None), chance.choice((1, 1, 1, 1, 2, 100, 3_000))
        repeated.extend([one] * min(times, 1 + BYTES_MAX // (len(one) if isinstance(one, str | bytes) and one else 8)))


def _odd_scalar(field: Any, chance: Random, known: Any) -> Any:
    kind = field.cpp_type
    if kind in _INTEGERS:
        least, most = _INTEGERS[kind]
        numbers = [number for number in ODD_NUMBERS if isinstance(number, int) and least <= number <= most]
        return chance.choice((least, most, *numbers))
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return float(chance.choice((0.0, -0.0, 0.5, -1.0, 1e-320, 1e308, math.inf, -math.inf, math.nan)))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return mutated_bytes(known or b"", chance)
    return chance.choice(ODD_TEXTS) if chance.random() < 0.9 else chance.choice(ODD_TEXTS) * 500


def _small_count(chance: Random) -> int:
    """Returns a small number: 1 most often, seldom more than 4."""
    return 1 + min(7, int(chance.expovariate(1.2)))
