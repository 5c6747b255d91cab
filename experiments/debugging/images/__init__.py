"""The image debugging study of document 004: its settings, runs, findings and page."""
