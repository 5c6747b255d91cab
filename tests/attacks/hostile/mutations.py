"""Mutations of bytes, JSON documents and paths: pure functions of a random generator.

Every function takes a `numpy.random.Generator`, its only source of randomness.
"""

import copy
import json
import os
import pathlib

# Values that trip up programs, as raw JSON text. Some Python's own writer would not produce.
RAW_VALUES = (
    'NaN',
    'Infinity',
    '-Infinity',
    '1e999',
    '-1e999',
    '1e-999',
    '-0.0',
    '0',
    '-1',
    '1',
    '2',
    '1e-300',
    '1e300',
    '1.5',
    '0.9999999999999999',
    '1e-320',
    '2147483648',
    '-2147483649',
    '9223372036854775807',
    '9223372036854775808',
    '18446744073709551616',
    '1' + '0' * 30,
    '1' + '0' * 400,
    '-1' + '0' * 400,
    '9' * 5000,
    'true',
    'false',
    'null',
    '""',
    '"1"',
    '"nan"',
    '[]',
    '{}',
    '[[]]',
    '[null]',
    '[1, "a"]',
    '{"": 0}',
    '"\\n\\r\\n"',
    '"\\u0000"',
    '"\\ud800"',
    '"\\u2028\\u202e"',
    '"\\u001b[2J"',
    '"' + 'x' * 70_000 + '"',
    '[' * 400 + ']' * 400,
    '[' * 5000 + ']' * 5000,
    '{"a":' * 900 + '1' + '}' * 900,
    '[' + '0,' * 20_000 + '0]',
    '"__class__"',
    '{"mechanism": "gaussian", "rounds": 3}',
    '"gaussian"',
    '"tree"',
    '3',
    '5',
    '7',
)
# Integers as they occur in headers: little-endian, of all sizes.
_INTEGERS = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**48,
    2**62,
    2**63 - 1,
    2**64 - 1,
)
_MOST_BYTES = 1 << 20


def of_bytes(rng, data: bytes) -> bytes:
    """One to four small changes of bytes."""
    mutable = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        _BYTE_CHANGES[rng.integers(len(_BYTE_CHANGES))](rng, mutable)
    return bytes(mutable[:_MOST_BYTES])


def _place(rng, data: bytearray) -> int:
    # Half of all changes are at the start, where headers are, or at the end, where directories are.
    size, where = len(data), rng.integers(4)
    if not size:
        return 0
    if where == 0:
        return int(rng.integers(min(size, 64)))
    if where == 1:
        return size - 1 - int(rng.integers(min(size, 128)))
    return int(rng.integers(size))


def _flip(rng, data):
    if data:
        data[_place(rng, data)] ^= 1 << int(rng.integers(8))


def _set(rng, data):
    if data:
        data[_place(rng, data)] = int(rng.choice((0, 10, 13, 32, 34, 44, 48, 92, 127, 255)))


def _truncate(rng, data):
    del data[_place(rng, data) :]


def _delete(rng, data):
    start = _place(rng, data)
    del data[start : start + int(rng.integers(1, 33))]


def _insert(rng, data):
    start = _place(rng, data)
    data[start:start] = rng.bytes(int(rng.integers(1, 33)))


def _repeat(rng, data):
    start = _place(rng, data)
    data[start:start] = data[start : start + int(rng.integers(1, 513))]


def _exchange(rng, data):
    first, second, size = _place(rng, data), _place(rng, data), int(rng.integers(1, 17))
    part = data[first : first + size]
    data[first : first + size] = data[second : second + size]
    data[second : second + size] = part


def _integer(rng, data):
    size = int(rng.choice((1, 2, 4, 8)))
    value = _INTEGERS[rng.integers(len(_INTEGERS))] % 256**size
    start = _place(rng, data)
    data[start : start + size] = value.to_bytes(size, 'big' if rng.integers(4) == 0 else 'little')


_BYTE_CHANGES = (_flip, _flip, _set, _truncate, _delete, _insert, _repeat, _exchange, _integer)


def of_json(rng, document) -> str:
    """JSON text, perhaps invalid, with one to three changed values, keys or lists."""
    document, raw = copy.deepcopy(document), []
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(document))
        if not places:
            break
        holder, key = places[rng.integers(len(places))]
        _change(rng, holder, key, raw)
    text = json.dumps(document)
    for number, value in enumerate(raw):
        text = text.replace(f'"@raw{number}@"', value)
    return text


def _places(value):
    """All pairs (container, key) of a document."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))[:50]
    else:
        return
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _change(rng, holder, key, raw):
    if key not in holder if isinstance(holder, dict) else key >= len(holder):
        return
    old, kind = holder[key], rng.integers(10)
    if kind < 5:
        raw.append(RAW_VALUES[rng.integers(len(RAW_VALUES))])
        holder[key] = f'@raw{len(raw) - 1}@'
    elif kind == 5 and isinstance(old, (int, float)) and not isinstance(old, bool):
        holder[key] = near(rng, old)
    elif kind == 6 and isinstance(old, list):
        holder[key] = old[: int(rng.integers(len(old) + 1))] + old
    elif kind == 7:
        del holder[key]
    elif kind == 8 and isinstance(holder, dict):
        # The same key again with another value: readers differ in which one they take.
        text = RAW_VALUES[rng.integers(len(RAW_VALUES))]
        raw.append(f'{json.dumps(old)}, {json.dumps(str(key))}: {text}')
        holder[key] = f'@raw{len(raw) - 1}@'
    elif isinstance(holder, dict):
        holder[str(rng.choice(('extra', 'rounds', 'name', 'mu', '\n', '', 'self')))] = old


def near(rng, number):
    """A number that is a little or far off."""
    factors = (
        -1,
        0,
        0.5,
        0.9,
        0.999999,
        1.0000001,
        1.1,
        2,
        10,
        1e-3,
        1e3,
        1e-9,
        1e9,
        1e-160,
        1e160,
    )
    if abs(number) > 1e100:  # An integer with so many digits cannot be multiplied by a float.
        number = 10**100
    value = number * factors[rng.integers(len(factors))]
    if isinstance(number, int):
        return number + int(rng.integers(-3, 4)) if rng.integers(2) else int(min(value, 1e30))
    return value


def special(rng, path: pathlib.Path, *, may_be_large: bool = False) -> str:
    """Puts something other than a data file at a path; returns what it is.

    One of the choices is a sparse file of 16 GiB, unless files of that kind may be so large.
    """
    kind = SPECIALS[rng.integers(len(SPECIALS))]
    if kind == 'sparse' and may_be_large:
        kind = 'missing'
    if kind == 'missing':
        pass
    elif kind == 'empty':
        path.write_bytes(b'')
    elif kind == 'directory':
        path.mkdir()
    elif kind == 'fifo':
        os.mkfifo(path)
    elif kind == 'loop':
        path.symlink_to(path.name)
    elif kind == 'sparse':
        with open(path, 'wb') as file:
            file.truncate(1 << 34)
    else:
        path.symlink_to(kind)
    return kind


SPECIALS = (
    'missing',
    'empty',
    'directory',
    'fifo',
    'loop',
    'sparse',
    '/dev/zero',
    '/dev/urandom',
    '/dev/null',
    '/nowhere/at all',
)
