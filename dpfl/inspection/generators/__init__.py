"""Two generators compared by what they write: sentences, unknown words, images."""
