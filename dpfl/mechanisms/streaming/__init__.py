"""Streaming the noise `C^-1 z` round by round: kernels, one step in place, where it is stored."""
