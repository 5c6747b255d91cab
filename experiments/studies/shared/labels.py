"""Images for people to label: the page on which they do so, and the labels that come back.

The page loads nothing from elsewhere; a label is one of the 62 characters of
`image_clients.CLASSES`.
"""

import base64
import csv
import html
import io
import os
import pathlib

import numpy as np

from dpfl import _files, _npz
from dpfl.errors import ArgumentError, shown
from dpfl.reporting import html_parts
from dpfl.tasks.images import image_clients
from experiments.studies.shared import files

IMAGES, SHEET, LABELS = 'images.npz', 'label.html', 'labels.csv'
# An image that nobody can read.
UNREADABLE = -1
_HEADER = ('image', 'label')
_CLASS_OF = {name: number for number, name in enumerate(image_clients.CLASSES)}
_SIDE = image_clients.IMAGE_SIZE
_STYLE = """
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(5.5rem, 1fr)); gap: .6rem; }
label { display: block; text-align: center; font-size: .8rem; }
label img { width: 100%; image-rendering: pixelated; border: 1px solid var(--line); }
input { width: 3rem; font-size: 1.1rem; text-align: center; }
"""
_SCRIPT = """
const fields = [...document.querySelectorAll('input')];
fields.forEach((field, at) => field.addEventListener('input', () => {
  if (field.value && at + 1 < fields.length) fields[at + 1].focus();
  const done = fields.filter(each => each.value).length;
  document.getElementById('done').textContent = done + ' of ' + fields.length;
}));
document.getElementById('save').addEventListener('click', () => {
  const rows = fields.map((field, at) => at + ',' + field.value.trim()).join('\\n');
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(['image,label\\n' + rows + '\\n'], {type: 'text/csv'}));
  link.download = 'labels.csv';
  link.click();
});
"""


def write_sheet(directory: pathlib.Path, pixels: np.ndarray, origin: str) -> pathlib.Path:
    """Writes images and a page on which a person labels them.

    Args:
      directory: gets `images.npz` and `label.html`; made if need be.
      pixels: float32 [n, 28, 28] within [0, 1].
      origin: a sentence about where the images come from, for those who label them.

    Returns:
      The path of the page.

    Raises:
      StorageError: if a file cannot be written.
    """
    file, path = io.BytesIO(), directory / SHEET
    np.savez(file, pixels=pixels)
    files.write(directory / IMAGES, file.getvalue())
    files.write(path, _sheet(pixels, origin))
    return path


def read_images(directory: pathlib.Path) -> np.ndarray:
    """The images that were written to a directory, float32 [n, 28, 28].

    Raises:
      ArgumentError: if there are none, or the file is damaged; it names `directory`.
    """
    path = directory / IMAGES
    try:
        pixels = _npz.load(path).get('pixels')
    except (OSError, ValueError) as error:
        raise ArgumentError('directory', directory, shown(error)) from None
    if pixels is None or pixels.shape[1:] != (_SIDE, _SIDE) or pixels.dtype != np.float32:
        raise ArgumentError('directory', directory, f'{IMAGES} holds no images')
    return pixels


def as_csv(labels: np.ndarray) -> str:
    """The text of a file of labels, as the page saves it."""
    names = ('' if each == UNREADABLE else image_clients.CLASSES[each] for each in labels.tolist())
    return '\n'.join([','.join(_HEADER), *(f'{i},{name}' for i, name in enumerate(names)), ''])


def read_labels(path: str | os.PathLike[str], count: int) -> np.ndarray:
    """The labels of images.

    Args:
      path: a CSV file with the columns image and label: the number of an image from 0 on, and its
        character. An image with an empty label, or without a row, is unreadable.
      count: number of images.

    Returns:
      Classes int32 [count]; `UNREADABLE` where there is none.

    Raises:
      ArgumentError: if the file is not of this form; it names `labels`.
    """

    def refused(reason: str) -> ArgumentError:
        return ArgumentError('labels', path, reason)

    try:
        rows = list(csv.reader(io.StringIO(_files.read_bytes(path).decode('utf-8-sig'))))
    except (OSError, ValueError, csv.Error) as error:
        raise refused(shown(error)) from None
    if not rows or tuple(rows[0]) != _HEADER:
        raise refused(f'must begin with the line {",".join(_HEADER)}')
    labels = np.full(count, UNREADABLE, np.int32)
    seen = set()
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        is_number = len(row) == len(_HEADER) and row[0].isascii() and row[0].isdigit()
        if not is_number or len(row[0]) > 9 or int(row[0]) >= count:
            raise refused(
                f'line {line}: must be the number of one of {count} images, a comma and a label'
            )
        image, name = int(row[0]), row[1].strip()
        if image in seen:
            raise refused(f'line {line}: image {image} has a label already')
        if name and name not in _CLASS_OF:
            raise refused(
                f'line {line}: the label must be one letter of A-Z or a-z, a digit or empty'
            )
        seen.add(image)
        labels[image] = _CLASS_OF.get(name, UNREADABLE)
    return labels


def _sheet(pixels: np.ndarray, origin: str) -> str:
    cells = []
    for number, each in enumerate(pixels):
        data = base64.b64encode(html_parts.png(each[None], 1, scale=2)).decode()
        cells.append(
            f'<label>{number}'
            f'<img alt="generated image {number}" src="data:image/png;base64,{data}">'
            '<input maxlength="1" autocomplete="off" autocapitalize="off" spellcheck="false">'
            '</label>'
        )
    title = 'Which character is it?'
    body = (
        f'<h1>{title}</h1>\n<p>{html.escape(origin)}</p>\n'
        '<p>Type the letter (capital or small) or digit that you see, and leave the field empty '
        'where you see none. Then save the labels.</p>\n'
        '<p><button id="save" type="button">Save labels.csv</button> '
        f'<span id="done">0 of {len(pixels)}</span></p>\n'
        f'<main>\n{chr(10).join(cells)}\n</main>\n<script>{_SCRIPT}</script>'
    )
    return html_parts.document(title, body, _STYLE)
