"""Images to label and the labels that come back."""

import re

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.images import image_clients
from experiments.studies.shared import labels as labels_lib

pytestmark = pytest.mark.standard


def test_the_sheet_shows_each_image_and_loads_nothing(tmp_path):
    pixels = np.random.default_rng(0).random((3, 28, 28), np.float32)
    path = labels_lib.write_sheet(tmp_path, pixels, 'Trained with epsilon 2 & delta 1e-6.')
    page = path.read_text()
    np.testing.assert_array_equal(labels_lib.read_images(tmp_path), pixels)
    assert len(re.findall(r'src="data:image/png;base64,', page)) == 3 == page.count('<input')
    assert 'epsilon 2 &amp; delta' in page and 'http' not in page


def test_labels_return_as_they_were(tmp_path):
    labels = np.array([0, 61, labels_lib.UNREADABLE, 10], np.int32)
    assert labels_lib.as_csv(labels).splitlines()[1:] == ['0,0', '1,z', '2,', '3,A']
    path = tmp_path / 'labels.csv'
    classes = np.arange(len(image_clients.CLASSES), dtype=np.int32)
    path.write_text(labels_lib.as_csv(classes))
    np.testing.assert_array_equal(labels_lib.read_labels(path, len(classes)), classes)
    # Rows in another order, with a mark of the byte order, and images that have no row.
    path.write_bytes(b'\xef\xbb\xbfimage,label\r\n2, b \r\n\r\n0,\r\n')
    assert labels_lib.read_labels(path, 4).tolist() == [-1, -1, 37, -1]


@pytest.mark.parametrize(
    'text, message',
    [
        (b'', 'must begin with the line image,label'),
        (b'number,label\n', 'must begin with the line image,label'),
        (b'image,label\n4,a\n', 'line 2: must be the number of one of 4 images'),
        (b'image,label\n-1,a\n', 'line 2: must be the number of one of 4 images'),
        (b'image,label\n99999999999999999999,a\n', 'line 2: must be the number'),
        (b'image,label\n1\n', 'line 2: must be the number of one of 4 images'),
        (b'image,label\n1,a\n1,b\n', 'line 3: image 1 has a label already'),
        (b'image,label\n1,ab\n', 'line 2: the label must be one letter'),
        ('image,label\n1,ä\n'.encode(), 'line 2: the label must be one letter'),
        (b'\xff\xfe\x00', 'labels'),
        (None, 'labels'),
    ],
)
def test_other_files_are_refused(text, message, tmp_path):
    path = tmp_path / 'labels.csv'
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ArgumentError, match=message) as refused:
        labels_lib.read_labels(path, 4)
    assert refused.value.name == 'labels'


def test_files_without_images_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match='directory'):
        labels_lib.read_images(tmp_path)
    np.savez(tmp_path / labels_lib.IMAGES, pixels=np.zeros((2, 3), np.float32))
    with pytest.raises(ArgumentError, match='holds no images'):
        labels_lib.read_images(tmp_path)
