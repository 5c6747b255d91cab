"""Layout of long signatures and values: an argument in each line.

mkdocstrings starts a formatter as a process for each of them, which takes half of the time of a
build. These few lines stand in for it.
"""

from collections.abc import Iterator

from mkdocstrings_handlers.python._internal import rendering

_OPENING, _CLOSING, _QUOTES = '([{', ')]}', '\'"'
_BODY = ': pass'


def install() -> None:
    """Makes mkdocstrings use `formatted`."""
    rendering._get_formatter = lambda: formatted


def formatted(code: str, width: int) -> str:
    """Code with the content of its first brackets on lines of their own, if it is too wide.

    Args:
      code: a function without a body, as `def f(a, b): pass`, or an assignment.
      width: most characters of a line.
    """
    is_function = code.startswith('def ') and code.endswith(_BODY)
    text = code.removesuffix(_BODY) if is_function else code
    if len(text) > width:
        text = _broken(text)
    return f'{text}:\n    pass\n' if is_function else text


def _broken(text: str) -> str:
    start = min((at for at in map(text.find, _OPENING) if at >= 0), default=-1)
    commas, end = [], -1
    for at, depth in _depths(text, start):
        if depth == 1 and text[at] == ',':
            commas.append(at)
        elif depth == 0:
            end = at
            break
    if end <= start + 1:
        return text
    cuts = [start, *commas, end]
    parts = [text[a + 1 : b].strip() for a, b in zip(cuts, cuts[1:], strict=False)]
    inner = ''.join(f'    {part},\n' for part in parts if part)
    return f'{text[: start + 1]}\n{inner}{text[end:]}'


def _depths(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Places from `start` on with the depth of brackets after them, those in strings left out."""
    depth, quote = 0, ''
    for at in range(max(start, 0), len(text)):
        letter = text[at]
        if quote:
            quote = '' if letter == quote and text[at - 1] != '\\' else quote
            continue
        if letter in _QUOTES:
            quote = letter
            continue
        depth += (letter in _OPENING) - (letter in _CLOSING)
        yield at, depth
