"""The two debugging studies of [Augenstein20]: finding a bug in data that nobody may look at."""
