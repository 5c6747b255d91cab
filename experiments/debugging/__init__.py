"""The two debugging studies of document 004: finding a bug in data that nobody may look at."""
