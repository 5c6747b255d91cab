"""Digests of noise keys: reports whose runs used the same noise cannot be composed."""

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpfl import errors

if TYPE_CHECKING:
    from dpfl.accounting.reports.report import PrivacyReport

_DOMAIN = b'dpfl noise key\n'
_LEDGER = b'dpfl ledger of an earlier run\n'


def digest(noise: str) -> str:
    """Digest of the noise keys of a run, in hexadecimal.

    Args:
      noise: `journal.Began.noise` of its first round, a digest of the keys before any noise
        was drawn. All noise of the run follows from these keys.
    """
    return hashlib.sha256(_DOMAIN + noise.encode()).hexdigest()


def checked(name: str, value: Any) -> str | None:
    """Returns `value`; raises ArgumentError unless it is None or such a digest."""
    if value is None or (isinstance(value, str) and re.fullmatch('[0-9a-f]{64}', value)):
        return value
    raise errors.ArgumentError(name, value, 'must be null or 64 hexadecimal digits')


def checked_list(name: str, values: Any) -> tuple[str, ...]:
    """Returns `values` as a tuple; raises ArgumentError unless they are a list of `earlier`."""
    if not isinstance(values, (list, tuple)) or not all(
        isinstance(run, str) and re.fullmatch('[0-9a-f]{64}(:[0-9a-f]{64})?', run) for run in values
    ):
        raise errors.ArgumentError(name, values, 'must be a list of digests')
    return tuple(values)


def earlier(key: str, chain: str | None) -> str:
    """What a report has of an earlier run: the digest of its keys, and one of its ledger.

    Args:
      key: from `digest`.
      chain: digest at the end of the last line of its ledger that counts; None if unknown.
    """
    if chain is None:
        return key
    return f'{key}:{hashlib.sha256(_LEDGER + chain.encode()).hexdigest()}'


def check(own: str | None, others: Sequence[str]) -> None:
    """Checks that a run has other noise than the earlier runs from which it continues.

    Args:
      own: digest of the run; None if it is not known.
      others: of the earlier runs, from `earlier`.

    Raises:
      ArgumentError: if two of these runs share noise.
    """
    known: dict[str, str] = {own: ''} if own else {}
    for run in others:
        key, _, ledger = run.partition(':')
        if key in known and not (ledger and ledger == known[key]):
            raise errors.ArgumentError(
                'noise_key_digest',
                key,
                'must differ between a run and the earlier runs that it continues from: with the '
                'same noise there is no joint guarantee (was one noise_seed given twice?)',
            )
        known[key] = ledger


def obstacle(reports: 'Sequence[PrivacyReport]') -> tuple[int, str] | None:
    """Why reports cannot be composed: two of the runs, or earlier runs of them, share noise.

    An earlier run that two reports have in common, with the same ledger, is no obstacle.

    Returns:
      The index of the later one of the two reports, and the reason in words; None if the keys that
      are known allow it. Reports without a run, and of older versions, have no key.
    """
    owners: dict[str, tuple[int, str]] = {}
    for number, report in enumerate(reports):
        for run in (report.noise_key_digest or '', *report.earlier_noise_key_digests):
            key, _, ledger = run.partition(':')
            if not key:
                continue
            owner, known = owners.setdefault(key, (number, ledger))
            if owner != number and not (ledger and ledger == known):
                return number, (
                    f'has the noise key of report {owner + 1} (its digest begins with {key[:8]}), '
                    'as a run and a copy of it that was continued have: together they show where '
                    'their sums differ, which no noise covers, and there is no joint guarantee'
                )
    return None
