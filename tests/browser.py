"""Chromium, which Debian has as a package, without a window."""

import pathlib
import shutil
import subprocess

BROWSER = shutil.which('chromium')


def browse(*arguments: str, page: pathlib.Path) -> str:
    """What the browser prints when it has shown a page."""
    assert BROWSER is not None
    flags = ('--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars')
    command = [BROWSER, *flags, f'--user-data-dir={page.parent / "browser"}', *arguments]
    done = subprocess.run([*command, page.as_uri()], check=True, timeout=120, capture_output=True)
    return done.stdout.decode()
