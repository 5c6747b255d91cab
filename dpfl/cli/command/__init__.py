"""The common part of all binaries: parsing, one-line errors, standard streams, exit status."""
