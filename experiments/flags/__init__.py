"""The flags of the binaries, and the values that they make."""
