"""Hardened noise: integers of an exact distribution, from a cryptographic generator.

- `keystream`: AES-256 in counter mode, and how the keys of rounds are derived from a run's key.
- `exponential`: exp(-x) with error bounds, in float64 and in integers of any length.
- `discrete_gaussian`: the exact sampler.
- `stream`: the correlated integer noise of each round, one block of coordinates at a time.
- `rounding`: how much the rounding of predictions adds to the sensitivity.

docs/reference/hardened.md has the theorem and its proof. This folder uses NumPy and `cryptography`
only.
"""
