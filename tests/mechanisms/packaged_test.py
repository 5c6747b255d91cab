"""Strategies by name, from any directory; a file that exists wins."""

import pytest

from dpfl import errors, mechanisms, strategies


def test_a_strategy_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = mechanisms.load('blt_b400')
    assert packaged == strategies.load('blt_b400') and packaged.rounds > 1000
    (tmp_path / 'blt_b100').mkdir()
    assert mechanisms.load('blt_b100').rounds > 0
    own = mechanisms.BinaryTree(4)
    mechanisms.save(own, 'blt_b400')
    assert mechanisms.load('blt_b400') == own


def test_an_unknown_name_lists_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.ArgumentError, match='must be a file or one of blt_b100, ') as error:
        mechanisms.load('blt_b4')
    assert str(error.value).startswith('path=blt_b4: ') and '\n' not in str(error.value)
    for path in ('blt_b4.npz', './blt_b4', tmp_path):
        with pytest.raises(ValueError, match='cannot be read as a mechanism'):
            mechanisms.load(path)
