"""What an audit measured in a run: the estimate from statistics of canaries, and its values."""
