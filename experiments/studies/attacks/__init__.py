"""Attacks on finished runs: what a model reveals of the clients that trained it."""
