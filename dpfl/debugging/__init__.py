"""Debugging of data that nobody may look at, by what private generators write and draw."""
