"""Flags that binaries share, and the settings they define."""
