"""Reads the messages of mailboxes in mbox format, one at a time.

Left out are quotes and the lines that introduce them, signatures (from the line `-- ` on), patches,
attachments, and forwarded or older messages below a line `-----Original Message-----`.
"""

import collections
import email
import email.message
import email.utils
import mailbox
import re
from collections.abc import Iterator, Sequence

from dpfl import _files, errors
from dpfl.tasks.text.author_texts import MAX_BYTES, Message, decoded

# What `messages` counts.
COUNTED = ('messages', 'without_author', 'not_text', 'endings', 'attributions', 'not_utf8', 'cut')
_ENDING = re.compile(
    r'^(?:--[ \t]?|---|-{2,} ?Original Message ?-{2,}|diff --git .*|Index: .*)$',
    re.MULTILINE | re.IGNORECASE,
)
_ATTRIBUTION = re.compile(
    r'^(?:On [^\n]{1,200}(?:\n[^\n]{1,200})?|[^\n>][^\n]{0,200})\s(?:wrote|writes):$', re.MULTILINE
)


def messages(paths: Sequence[str], counts: collections.Counter[str]) -> Iterator[Message]:
    """The text of all messages that have an author and plain text.

    The author is the address of the header From, in lower case; the header where it has none.

    Args:
      paths: of the mailboxes.
      counts: gets the numbers that `COUNTED` names: of messages; of those without a header From or
        without plain text; of endings and attributions that are left out; of messages that are not
        in the encoding they state; and of those that are cut after 256 KiB.

    Raises:
      ArgumentError: if a file cannot be read or has no message; it names `data_path`.
    """
    for source, path in enumerate(paths):
        try:
            with _files.open_regular(path) as file:
                begins = file.read(5)
            if begins != b'From ':
                raise errors.ArgumentError(
                    'data_path', path, 'must be in mbox format, which begins with "From "'
                )
            for data in _raw(path):
                counts['messages'] += 1
                parsed = email.message_from_bytes(data)
                author, text = _author(parsed), _text(parsed, counts)
                counts['without_author'] += not author
                counts['not_text'] += text is None
                if author and text is not None:
                    yield Message(author, source, without_quotes(text, counts))
        except OSError as error:
            raise errors.ArgumentError(
                'data_path', path, f'cannot be read ({error.strerror})'
            ) from None


def without_quotes(text: str, counts: collections.Counter[str]) -> str:
    """A message without its ending and the lines that introduce quotes."""
    text = '\n'.join(text.splitlines())
    if ending := _ENDING.search(text):
        counts['endings'] += 1
        text = text[: ending.start()]
    text, count = _ATTRIBUTION.subn('', text)
    counts['attributions'] += count
    return text


def _raw(path: str) -> Iterator[bytes]:
    box = mailbox.mbox(path, create=False)
    try:
        for key in box.iterkeys():
            yield box.get_bytes(key)
    finally:
        box.close()


def _author(parsed: email.message.Message) -> str:
    """The address of the sender; of archives that write `name at host`, too."""
    sender = ' '.join(str(parsed.get('From', '')).split())
    if '@' not in sender:
        sender = re.sub(r'(\S+) at (\S+\.\S+)', r'\1@\2', sender)
    _, address = email.utils.parseaddr(sender)
    return (address if '@' in address else sender).lower()


def _text(parsed: email.message.Message, counts: collections.Counter[str]) -> str | None:
    """The first part with plain text that is no attachment."""
    for part in parsed.walk():
        if part.get_content_type() != 'text/plain':
            continue
        if part.get_content_disposition() == 'attachment':
            continue
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes):
            continue
        counts['cut'] += len(data) > MAX_BYTES
        data = data[:MAX_BYTES]
        charset = part.get_content_charset('utf-8')
        try:
            if charset not in ('utf-8', 'us-ascii'):
                return data.decode(charset)
        except (LookupError, UnicodeError, ValueError):
            pass
        text, is_damaged = decoded(data)
        counts['not_utf8'] += is_damaged
        return text
    return None
