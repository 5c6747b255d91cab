"""Keys and certificates: the same wherever they are derived from a token, others for others."""

import hashlib

from dpfl.runtime.workers import credentials

_TOKEN = bytes(range(32))


def _certificate(pem):
    return pem[pem.index('-----BEGIN CERTIFICATE') :]


def test_each_side_accepts_what_the_other_one_shows():
    worker, run = credentials.for_worker(_TOKEN), credentials.for_run(_TOKEN)
    assert _certificate(worker.own) == run.peer
    assert _certificate(run.own) == worker.peer
    assert worker.peer != run.peer


def test_they_follow_from_the_token_alone():
    # Two hosts with other versions of the library must derive the same bytes.
    digests = [
        hashlib.sha256(side(_TOKEN).own.encode()).hexdigest()
        for side in (credentials.for_worker, credentials.for_run)
    ]
    assert digests == [
        'd306d2514a21ab3af235061faaca1c065a7a75907ab6d6f3ea2ae63bddbecb46',
        '86659bb5da5f8819226d998eaed5d3458afbe6609f0ae4209ffb7606ce179ef6',
    ]


def test_tokens_that_differ_in_a_bit_have_nothing_in_common():
    other = bytes([_TOKEN[0] ^ 1]) + _TOKEN[1:]
    for side in (credentials.for_worker, credentials.for_run):
        assert side(other).peer != side(_TOKEN).peer
        assert side(other).own != side(_TOKEN).own


def test_the_private_key_is_not_shown():
    shown = repr(credentials.for_run(_TOKEN))
    assert 'PRIVATE' not in shown
    assert 'PRIVATE' not in credentials.for_run(_TOKEN).peer
