"""Where things are in the repository, for tests that need files."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / 'dpfl' / 'published' / 'tables' / 'published.json'
