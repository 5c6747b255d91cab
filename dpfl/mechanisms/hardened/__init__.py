"""Noise in integers, exactly distributed, from a cryptographic generator: `noise='hardened'`.

- `keystream`: AES-256 in counter mode, and how keys of rounds follow from that of a run.
- `exponential`: exp(-x) with error bounds, in float64 and in integers of any length.
- `discrete_gaussian`: the exact sampler.
- `stream`: the correlated noise of each round in integers, a block of coordinates at a time.
- `rounding`: what the rounding of predictions adds to the sensitivity.

docs/hardened.md has the theorem and its proof. NumPy and `cryptography` only.
"""
