"""What every binary does alike: parsing, errors in one line, standard streams, exit status."""
