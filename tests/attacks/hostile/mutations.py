"""Mutations of files by their kind, and of numbers: pure functions of a random generator.

Every function takes a `numpy.random.Generator`, its only source of randomness.
"""

import contextlib
import io
import json
import sqlite3
import struct
import warnings
import zipfile

import numpy as np

# Values that trip up programs, as raw JSON text. Some Python's own writer would not produce.
RAW_VALUES = (
    *'NaN Infinity -Infinity 1e999 -1e999 1e-999 -0.0 0 -1 1 2 3 5 7 1e-300 1e300 1.5'.split(),
    *'0.9999999999999999 1e-320 2147483648 -2147483649 9223372036854775808'.split(),
    *('1' + '0' * 30, '1' + '0' * 400, '-1' + '0' * 400, '9' * 5000),
    *'true false null "" "1" "nan" [] {} [[]] [null] [1,"a"] {"":0} "gaussian" "tree"'.split(),
    *r'"\n\r\n" "\u0000" "\ud800" "\u2028\u202e" "\u001b[2J" "__class__"'.split(),
    *('[' * 400 + ']' * 400, '[' * 5000 + ']' * 5000, '{"a":' * 900 + '1' + '}' * 900),
    *('[' + '0,' * 20_000 + '0]', '"' + 'x' * 70_000 + '"'),
    '{"mechanism": "gaussian", "rounds": 3}',
)
_FLOATS = list(map(float, 'nan inf -inf 0 -0 -1 1 2 1e300 -1e300 1e160 1e-160 5e-324'.split()))
# At the limits of 1, 2, 4 and 8 bytes, with and without a sign.
_INTEGERS = [2**power + step for power in (0, 7, 8, 15, 16, 31, 32, 63, 64) for step in (-1, 0)]
_DTYPES = '<f8 >f8 <f4 <f2 <i8 >i8 <i4 <u8 |u1 |b1 <c16 <U8 |S8'.split()
_DESCRIPTIONS = (
    *'<f8 <i8 >i8 |b1 <f16 O |O <U99999 <f999 |V0 |S0 <U0 <M8[s] \\x00'.split(),
    *('', "<f8', 'x': '", '<i8, <f8'),
)
_SHAPES = (
    *'() (0,) (1,) (-1,) (3,) (2,2) (1,)*9 3 [3] (True,) (3.0,) (None,) (1e3,)'.split(),
    *'(1000000000000,) (4294967296,4294967296) (0,99999999999999999999)'.split(),
    *('(' * 300 + ')' * 300, '(' * 4000, '(' + '1,' * 200 + ')'),
)
_NAMES = (
    *'rounds rounds.npy self mechanism base base/rounds rounds/rounds clients offsets'.split(),
    *('', '..', '/', '\n', 'x' * 5000, 'é\u202e', 'base/' * 9 + 'rounds'),
)
# Values for a column that is declared as text or blob: SQLite accepts any type in any column.
_CELLS = (None, 1, -1, 2**62, 0.5, float('inf'), 'text', b'', b'\xff\x00', 'train', 'x' * 70_000)
_MOST_BYTES = 1 << 20


def of_file(rng, name: str, data: bytes) -> bytes:
    """A file with other contents of its kind, which the end of its name says, or other bytes."""
    kind = name.rpartition('.')[2]
    if kind in _KINDS and rng.integers(4):
        return _KINDS[kind](rng, data)
    return of_bytes(rng, data)


def of_bytes(rng, data: bytes) -> bytes:
    """One to four small changes of bytes."""
    for _ in range(int(rng.integers(1, 5))):
        start, size = _place(rng, len(data)), int(rng.integers(1, 33))
        before, part, after = data[:start], data[start : start + size], data[start + size :]
        width = int(rng.choice((1, 2, 4, 8)))
        value = _INTEGERS[rng.integers(len(_INTEGERS))] % 256**width
        order = 'big' if rng.integers(4) == 0 else 'little'
        flipped = bytes([byte ^ 1 << int(rng.integers(8)) for byte in part[:1]]) + part[1:]
        special = bytes([rng.choice(list(b'\0\n\r "\',0\\\x7f\xff'))])
        data = (
            before + flipped + after,
            before + special + part[1:] + after,
            before,
            before + after,
            before + rng.bytes(size) + part + after,
            before + data[start : start + 16 * size] + part + after,
            before + after[:size] + part + after[size:],
            before + value.to_bytes(width, order) + data[start + width :],
        )[rng.integers(8)]
    return data[:_MOST_BYTES]


def _place(rng, size: int) -> int:
    # Half of all changes are at the start, where headers are, or at the end, where directories are.
    first, last = ((0, 64), (size - 128, size), (0, size), (0, size))[rng.integers(4)]
    return int(rng.integers(max(first, 0), max(min(last, size), 1)))


def of_json(rng, data: bytes) -> bytes:
    """JSON text, perhaps invalid, with one to three changed values, keys or lists."""
    document, raw = json.loads(data), []
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(document))
        if places:
            _change(rng, *places[rng.integers(len(places))], raw)
    text = json.dumps(document)
    for number, value in enumerate(raw):
        text = text.replace(f'"@raw{number}@"', value)
    return text.encode('utf-8', 'surrogatepass')


def _places(value):
    """All pairs (container, key) of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:50])
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from _places(inner)


def _change(rng, holder, key, raw):
    old, kind = holder[key], rng.integers(10)
    text = RAW_VALUES[rng.integers(len(RAW_VALUES))]
    if kind < 5:
        raw.append(text)
        holder[key] = f'@raw{len(raw) - 1}@'
    elif kind == 5 and isinstance(old, (int, float)) and not isinstance(old, bool):
        holder[key] = near(rng, old)
    elif kind == 6 and isinstance(old, list):
        holder[key] = old[: int(rng.integers(len(old) + 1))] + old
    elif kind == 7:
        del holder[key]
    elif kind == 8 and isinstance(holder, dict):
        # The same key again with another value: readers differ in which one they take.
        raw.append(f'{json.dumps(old)}, {json.dumps(key)}: {text}')
        holder[key] = f'@raw{len(raw) - 1}@'
    elif isinstance(holder, dict):
        holder[str(rng.choice(('extra', 'rounds', 'name', 'mu', '\n', '', 'self')))] = old


def near(rng, number):
    """A number that is a little or far off."""
    factors = (-1, 0, 0.5, 0.9, 0.999999, 1.0000001, 1.1, 2, 10, 1e-3, 1e3, 1e-160, 1e160)
    if abs(number) > 1e100:  # An integer with so many digits cannot be multiplied by a float.
        number = 10**100
    value = number * factors[rng.integers(len(factors))]
    if isinstance(number, int):
        return number + int(rng.integers(-3, 4)) if rng.integers(2) else int(min(value, 1e30))
    return value


def of_archive(rng, data: bytes) -> bytes:
    """An `.npz` archive with one to three changes and right checksums; names may occur twice."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(members) + 1))
        name, data = members[place - 1] if members else ('a.npy', b'')
        other, kind = f'{rng.choice(_NAMES)}.npy', rng.integers(8)
        if kind < 5:
            changed = [(name, of_array(rng, data) if kind else of_bytes(rng, data))]
        else:
            changed = ([], [(other, data)], [(name, data), (other, data)])[kind - 5]
        members[max(place - 1, 0) : place] = changed
    file, methods = io.BytesIO(), (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(file, 'w', methods[rng.integers(10) // 4]) as archive:
        warnings.simplefilter('ignore')  # Names that occur twice.
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, archive.compression)
    return file.getvalue()


def of_array(rng, data: bytes) -> bytes:
    """An `.npy` file with other values, type or shape, or with a header that claims them."""
    if rng.integers(4) == 0:
        return npy_described(
            str(rng.choice(_SHAPES)),
            str(rng.choice(_DESCRIPTIONS)),
            order=('False', 'True', '0', '[]')[rng.integers(4)],
            data=data[-64:],
        )
    file = io.BytesIO()
    try:
        array = np.lib.format.read_array(io.BytesIO(data))
        np.lib.format.write_array(file, _changed(rng, array), allow_pickle=True)
    except Exception:  # It was changed before, and NumPy cannot read it any more.
        return of_bytes(rng, data)
    return file.getvalue()


def _changed(rng, array: np.ndarray) -> np.ndarray:
    flat, kind = array.reshape(-1).copy(), rng.integers(9)
    with np.errstate(all='ignore'), contextlib.suppress(ValueError, TypeError, OverflowError):
        if kind == 0:
            return array.astype(rng.choice(_DTYPES))
        if kind == 1:
            return np.array([array.tolist(), None, {'a': 1}], dtype=object)  # Saved as a pickle.
        if kind == 2:
            return flat[: int(rng.integers(array.size + 1))]
        if kind == 3:
            return np.concatenate([flat] * int(rng.integers(2, 5)))
        if kind == 4:
            return array.reshape((1,) * int(rng.integers(1, 5)) + array.shape)
        if array.size and array.dtype.kind in 'iuf':
            place = rng.integers(array.size)
            pool = _FLOATS if array.dtype.kind == 'f' else _INTEGERS
            value = near(rng, flat[place].item()) if kind < 7 else pool[rng.integers(len(pool))]
            flat[place] = value
    return flat.reshape(array.shape)


def npy_header(text: str, data=b'') -> bytes:
    """An `.npy` file with this header."""
    encoded = text.encode() + b'\n'
    return b'\x93NUMPY\1\0' + struct.pack('<H', len(encoded)) + encoded + data


def npy_described(shape: str, dtype: str = '<f8', order='False', data=b'\0' * 64) -> bytes:
    """An `.npy` file that claims this shape and type."""
    return npy_header(f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}, }}", data)


def of_database(rng, data: bytes) -> bytes:
    """An SQLite file with one to three cells of other values or types."""
    with contextlib.closing(sqlite3.connect(':memory:')) as connection:
        connection.deserialize(data)
        for _ in range(int(rng.integers(1, 4))):
            table, place = ('client_metadata', 'examples')[rng.integers(2)], int(rng.integers(1, 7))
            (row,) = connection.execute(f'SELECT * FROM {table} WHERE rowid = ?', (place,))
            number = rng.integers(len(row))
            column = list(connection.execute(f'PRAGMA table_info({table})'))[number][1]
            cell = _CELLS[rng.integers(len(_CELLS))]
            if isinstance(row[number], bytes) and rng.integers(2):
                cell = of_bytes(rng, row[number])
            with contextlib.suppress(sqlite3.IntegrityError):  # Not every column may be empty.
                statement = f'UPDATE {table} SET {column} = ? WHERE rowid = ?'
                connection.execute(statement, (cell, place))
        connection.commit()
        return connection.serialize()


_KINDS = {'json': of_json, 'npz': of_archive, 'npy': of_array, 'sqlite': of_database}
