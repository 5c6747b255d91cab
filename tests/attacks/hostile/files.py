"""Helpers that write .npz archives and .npy headers with any content."""

import struct
import zipfile


def npz_archive(path, members, method=zipfile.ZIP_STORED):
    """Writes an archive with these names and bytes; returns its path."""
    with zipfile.ZipFile(path, 'w', method) as file:
        for name, data in members:
            file.writestr(zipfile.ZipInfo(name), data, method)
    return path


def npy_header(text: str, data=b'') -> bytes:
    """A .npy file with this header."""
    encoded = text.encode() + b'\n'
    return b'\x93NUMPY\1\0' + struct.pack('<H', len(encoded)) + encoded + data


def npy_described(shape: str, dtype: str = '<f8') -> bytes:
    """A .npy file that claims this shape and type, with 64 bytes of data."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    return npy_header(text, b'\0' * 64)
