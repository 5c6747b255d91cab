"""Mutations of `.npz` archives with right checksums, so that readers get past these."""

import io
import struct
import zipfile
import zlib

import numpy as np

from tests.attacks.hostile import mutations

_HOSTILE_FLOATS = (
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    -1.0,
    1.0,
    2.0,
    1e300,
    -1e300,
    1e-300,
    1e160,
    1e-160,
    5e-324,
    1.0000001,
    0.9999999,
)
_HOSTILE_INTEGERS = (0, 1, -1, 2, 3, 7, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63))
_DTYPES = (
    '<f8',
    '>f8',
    '<f4',
    '<f2',
    '<i8',
    '>i8',
    '<i4',
    '<u8',
    '|u1',
    '|b1',
    '<c16',
    '<U8',
    '|S8',
)
_DESCRIPTIONS = (
    '<f8',
    '|O',
    'O',
    '<i8',
    '<U99999',
    '<f999',
    '|V0',
    '<M8[s]',
    '',
    '\\x00',
    "<f8', 'x': '",
    '<i8, <f8',
    '|S0',
    '<U0',
    '>i8',
    '<f16',
    '|b1',
)
_SHAPES = (
    '()',
    '(0,)',
    '(1,)',
    '(-1,)',
    '(3,)',
    '(1000000000000,)',
    '(9223372036854775807,)',
    '(4294967296, 4294967296)',
    '(99999999999999999999,)',
    '(0, 99999999999999999999)',
    '(2, 2)',
    '(1,) * 9',
    '3',
    '[3]',
    '(True,)',
    '(3.0,)',
    '(' * 300 + ')' * 300,
    '(' * 4000,
    "('3',)",
    '(' + '1,' * 200 + ')',
    '(None,)',
    '(1e3,)',
)
_NAMES = (
    '',
    '.npy',
    '..',
    '/',
    'a/b/c',
    'base/base/base/base/base/base/base/base/base/base/rounds',
    '\n',
    'x' * 5000,
    'rounds',
    'rounds.npy',
    'self',
    'mechanism',
    'base',
    'base/rounds',
    'clients',
    'offsets',
    'é\u202e',
    '__class__',
    'rounds/rounds',
)


def of_arrays(rng, arrays: dict[str, np.ndarray]) -> bytes:
    """An archive of the arrays with one to three hostile changes, and right checksums."""
    members = [(f'{name}.npy', npy(array)) for name, array in arrays.items()]
    for _ in range(int(rng.integers(1, 4))):
        if not members:
            break
        place = int(rng.integers(len(members)))
        name, data = members[place]
        kind = rng.integers(10)
        if kind < 4:
            original = arrays.get(name.removesuffix('.npy'), np.arange(3))
            members[place] = name, npy(changed(rng, original))
        elif kind == 4:
            members[place] = name, header(rng, data)
        elif kind == 5:
            members[place] = name, mutations.of_bytes(rng, data)
        elif kind == 6:
            del members[place]
        elif kind == 7:
            members.insert(place, (name, npy(changed(rng, np.arange(3)))))
        elif kind == 8:
            new = str(rng.choice(_NAMES))
            members.insert(place, (f'{new}.npy' if rng.integers(4) else new, data))
        else:
            members[place] = f'{rng.choice(_NAMES)}.npy', data
    if rng.integers(400) == 0:
        return bomb(rng, members)
    archive = written(rng, members)
    return directory(rng, archive) if rng.integers(4) == 0 else archive


def npy(array: np.ndarray) -> bytes:
    """The array as a `.npy` file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def changed(rng, array: np.ndarray) -> np.ndarray:
    """The array with a changed value, type, size or shape."""
    array = np.array(array)
    kind = rng.integers(9)
    if kind < 4 and array.size and array.dtype.kind in 'iuf':
        flat = array.reshape(-1).copy()
        pool = _HOSTILE_FLOATS if array.dtype.kind == 'f' else _HOSTILE_INTEGERS
        value = pool[rng.integers(len(pool))]
        if rng.integers(2):
            value = mutations.near(rng, flat[rng.integers(flat.size)].item())
        if array.dtype.kind in 'iu':
            limits = np.iinfo(array.dtype)
            value = min(max(int(value), int(limits.min)), int(limits.max))
        with np.errstate(all='ignore'):
            flat[rng.integers(flat.size)] = value
        return flat.reshape(array.shape)
    if kind == 4:
        try:
            with np.errstate(all='ignore'):
                return array.astype(rng.choice(_DTYPES))
        except (ValueError, TypeError):
            return array
    if kind == 5:
        return np.array([array.tolist(), None, {'a': 1}], dtype=object)  # Saved as a pickle.
    if kind == 6:
        return array.reshape(-1)[: int(rng.integers(array.size + 1))]
    if kind == 7:
        return np.concatenate([array.reshape(-1)] * int(rng.integers(2, 5)))
    return array.reshape((1,) * int(rng.integers(1, 5)) + array.shape)


def header(rng, data: bytes) -> bytes:
    """The array as a `.npy` file with a changed header."""
    if rng.integers(3) == 0:
        version = ((1, 0), (2, 0), (3, 0), (9, 9))[rng.integers(4)]
    else:
        version = (1, 0)
    order = ('False', 'True', '0', 'None', '[]')[rng.integers(5)]
    text = (
        f"{{'descr': '{rng.choice(_DESCRIPTIONS)}', 'fortran_order': {order}, "
        f"'shape': {_SHAPES[rng.integers(len(_SHAPES))]}, }}"
    )
    if rng.integers(6) == 0:
        text = mutations.of_bytes(rng, text.encode()).decode('latin-1')
    encoded = text.encode('latin-1', 'replace') + b'\n'
    size = len(encoded) if rng.integers(8) else int(rng.integers(2**32))
    wide = version != (1, 0)
    length = struct.pack('<I', size % 2**32) if wide else struct.pack('<H', size % 2**16)
    return np.lib.format.MAGIC_PREFIX + bytes(version) + length + encoded + data[-64:]


def written(rng, members) -> bytes:
    """An archive of the members, stored or compressed; names may occur twice."""
    file = io.BytesIO()
    methods = (
        zipfile.ZIP_STORED,
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_LZMA,
        zipfile.ZIP_BZIP2,
    )
    method = methods[rng.integers(len(methods) if rng.integers(4) == 0 else 3)]
    with zipfile.ZipFile(file, 'w', method) as archive:
        for name, data in members:
            # ZipInfo cuts a name at a zero byte. Two members with one name only cause a warning.
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def directory(rng, archive: bytes) -> bytes:
    """The archive with a changed size, method, flag or offset in one of its headers."""
    mutable = bytearray(archive)
    places = [i for i in range(len(archive) - 46) if archive[i : i + 4] in (b'PK\1\2', b'PK\3\4')]
    if not places:
        return archive
    start = places[rng.integers(len(places))]
    central = archive[start : start + 4] == b'PK\1\2'
    fields = (
        ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (42, 4))
        if central
        else ((6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2))
    )
    offset, size = fields[rng.integers(len(fields))]
    value = (0, 1, 8, 99, 0x7FFFFFFF, 0xFFFFFFFF, len(archive), int(rng.integers(2**32)))
    new = value[rng.integers(len(value))] % 256**size
    mutable[start + offset : start + offset + size] = new.to_bytes(size, 'little')
    return bytes(mutable)


_PIECE = 1 << 26


def _zeros(pieces: int) -> bytes:
    """Deflated zeros: a multiple of 64 MiB."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(_PIECE)) + packer.flush(zlib.Z_FULL_FLUSH)
    # Data after a full flush do not refer to data before it, so the block can be repeated.
    return piece * pieces + packer.flush(zlib.Z_FINISH)


def bomb(rng, members) -> bytes:
    """An archive whose first member unpacks to gigabytes; its header agrees with that."""
    pieces = int(rng.choice((3, 32, 160)))
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({pieces * _PIECE // 8},), }}"
    start = (
        np.lib.format.MAGIC_PREFIX
        + b'\1\0'
        + struct.pack('<H', len(text) + 1)
        + text.encode()
        + b'\n'
    )
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    head = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = head + _BOMBS.setdefault(pieces, _zeros(pieces))
    name = members[0][0].encode() if members else b'a.npy'
    # 64-bit sizes, in the extra field.
    extra = struct.pack('<HHQQ', 1, 16, len(start) + pieces * _PIECE, len(packed))
    local = (
        struct.pack(
            '<4s5H3L2H', b'PK\3\4', 45, 0, 8, 0, 0, 0, 2**32 - 1, 2**32 - 1, len(name), len(extra)
        )
        + name
        + extra
    )
    central = (
        struct.pack(
            '<4s6H3L5H2L',
            b'PK\1\2',
            45,
            45,
            0,
            8,
            0,
            0,
            0,
            2**32 - 1,
            2**32 - 1,
            len(name),
            len(extra),
            0,
            0,
            0,
            0,
            0,
        )
        + name
        + extra
    )
    end = struct.pack('<4s4H2LH', b'PK\5\6', 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    return local + packed + central + end


_BOMBS: dict[int, bytes] = {}
