"""What a finished run leaves behind: how its files are written, read and verified."""
