"""The commands: the library from the command line. Top layer; it alone knows flags."""
