"""What all binaries share: parsing, one-line errors, standard streams, exit status."""
