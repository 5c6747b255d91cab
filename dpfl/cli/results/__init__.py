"""Results of the binaries: computations beyond one library call, files, and printed text."""
