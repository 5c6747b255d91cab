"""Addresses of workers, valid and invalid."""

import pytest

from dpfl.runtime.workers import addresses


@pytest.mark.parametrize(
    'text, host, port',
    [
        ('localhost:8000', 'localhost', 8000),
        ('10.0.0.7:1', '10.0.0.7', 1),
        ('[::1]:65535', '::1', 65535),
        (' worker-1.example.org:80 ', 'worker-1.example.org', 80),
    ],
)
def test_addresses(text, host, port):
    (found,) = addresses.parse([text])
    assert (found.host, found.port) == (host, port)
    assert str(found) == text.strip()


@pytest.mark.parametrize(
    'text',
    [
        '',
        'localhost',
        'localhost:',
        ':8000',
        'localhost:0',
        'localhost:65536',
        'localhost:-1',
        'localhost:8e3',
        'localhost:\u0663',
        '::1:8000',
        '[::1]',
        '[host]:80',
        'a b:80',
        'http://host:80',
    ],
)
def test_others_are_refused(text):
    with pytest.raises(ValueError, match='workers=.*: must be host:port'):
        addresses.parse(['localhost:1', text])


def test_a_worker_is_named_once():
    with pytest.raises(ValueError, match='workers=a:1: must be given once'):
        addresses.parse(['a:1', 'b:1', 'a:1'])


def test_tokens_are_for_all_or_one_each_and_are_not_shown():
    workers = ['a:1', 'b:1']
    for tokens, expected in [
        ([], [None, None]),
        ([b'x'], [b'x', b'x']),
        ([b'x', b'y'], [b'x', b'y']),
    ]:
        found = addresses.parse(workers, tokens)
        assert [address.token for address in found] == expected
        assert addresses.parse(found) == found
        assert [address.token for address in addresses.parse(found)] == expected
        assert 'token' not in repr(found) and "b'x'" not in repr(found)
    for tokens in ([b'x'] * 3, [b'x'] * 4):
        with pytest.raises(ValueError, match='tokens=. of them: must be one, or one for each of 2'):
            addresses.parse(workers, tokens)


def test_a_worker_with_two_tokens_is_named_twice():
    with pytest.raises(ValueError, match='workers=a:1: must be given once'):
        addresses.parse(['a:1', 'a:1'], [b'x', b'y'])
