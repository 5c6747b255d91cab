"""Results of the binaries: what they compute beyond one library call, write and print."""
