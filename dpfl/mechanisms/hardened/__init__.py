"""Hardened noise: integers of an exact distribution, from a cryptographic generator.

- `discrete_gaussian`: keystreams of AES-256, how the keys of rounds are derived from a run's key,
  and the exact sampler.
- `stream`: the correlated integer noise of each round, one block of coordinates at a time, and how
  much the rounding of its predictions adds to the sensitivity.

docs/reference/hardened.md has the theorem and its proof. This folder uses NumPy and `cryptography`
only.
"""
