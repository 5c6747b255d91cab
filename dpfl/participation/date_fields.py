"""Numbers of seconds and dates as microseconds, from letters, without a loop over rows.

NumPy 1.25 can end the process when it fails to convert a text to a date, so nothing here does that.
"""

import numpy as np

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
# The year 2242: a larger number is not in seconds, most likely in milliseconds.
_MOST_SECONDS = 2**33
_MOST_DIGITS = 18
_FINEST = 6  # Digits of a microsecond.
# Letters of YYYY-MM-DDTHH:MM that are not digits; T may be a space.
_MARKS = {4: b'-', 7: b'-', 10: b'T ', 13: b':'}
_MINUTES_END = 16


def seconds(letters: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers such as 1685571300.25, at most 2^33.

    Args:
      letters: of each field, uint8 [rows, letters]; letters behind the end do not count.
      lengths: of the fields, int64 [rows].

    Returns:
      Microseconds, int64 [rows], and which fields are right, bool [rows].
    """
    rows, width = letters.shape
    inside = np.arange(width) < lengths[:, None]
    is_digit = (letters >= ord('0')) & (letters <= ord('9'))
    is_dot = (letters == ord('.')) & inside
    dots = np.where(is_dot.any(axis=1), is_dot.argmax(axis=1), lengths)
    is_right = (is_digit | is_dot | ~inside).all(axis=1) & (is_dot.sum(axis=1) <= 1)
    is_right &= (dots > 0) & (dots <= _MOST_DIGITS)
    values = np.zeros(rows, np.int64)
    digits = letters.astype(np.int64) - ord('0')
    for place in range(min(width, _MOST_DIGITS)):
        values = np.where(place < dots, 10 * values + digits[:, place], values)
    is_right &= values <= _MOST_SECONDS
    for behind in range(1, _FINEST + 1):
        places = np.minimum(dots + behind, width - 1)
        digit = np.where(dots + behind < lengths, digits[np.arange(rows), places], 0)
        values = 10 * values + digit
    return values, is_right


def dates(letters: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dates such as 2023-05-31T22:15:00.25Z, in UTC; seconds and Z may be missing.

    Arguments and result are as in `seconds`; the microseconds are those since 1970.
    """
    rows = letters.shape[0]
    lengths = lengths - (letters[np.arange(rows), lengths - 1] == ord('Z'))
    is_right = lengths >= _MINUTES_END
    for place, marks in _MARKS.items():
        is_right &= np.isin(letters[:, place], list(marks))
    digits = letters[:, :_MINUTES_END].astype(np.int64) - ord('0')
    for place in set(range(_MINUTES_END)) - set(_MARKS):
        is_right &= (digits[:, place] >= 0) & (digits[:, place] <= 9)

    def number(first: int, count: int) -> np.ndarray:
        return digits[:, first : first + count] @ 10 ** np.arange(count)[::-1]

    months = np.where(is_right, 12 * (number(0, 4) - 1970) + number(5, 2) - 1, 0)
    days = months.astype('M8[M]').astype('M8[D]') + np.where(is_right, number(8, 2) - 1, 0)
    is_right &= (number(5, 2) >= 1) & (number(5, 2) <= 12) & (number(8, 2) >= 1)
    is_right &= days.astype('M8[M]').astype(np.int64) == months
    is_right &= (number(11, 2) < 24) & (number(14, 2) < 60)
    has_seconds = lengths > _MINUTES_END
    within, is_number = seconds(
        letters[:, _MINUTES_END + 1 :], np.maximum(lengths - _MINUTES_END - 1, 0)
    )
    is_right &= ~has_seconds | (
        is_number & (letters[:, _MINUTES_END] == ord(':')) & (within < 61 * _SECOND)
    )
    values = days.astype(np.int64) * _DAY + (number(11, 2) * 60 + number(14, 2)) * 60 * _SECOND
    return values + np.where(has_seconds, within, 0), is_right
