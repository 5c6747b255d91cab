"""Attacks that measure what a model reveals.

`exposure`: how far secrets in the text of clients are memorised.
"""
