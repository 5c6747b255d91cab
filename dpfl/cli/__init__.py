"""The commands: what the library does, from the command line. Top layer; it alone knows flags."""
