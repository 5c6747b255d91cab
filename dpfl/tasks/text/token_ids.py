"""Ids of the special tokens. Word w of a vocabulary (from 0) is token w + NUM_SPECIAL_TOKENS."""

PAD_ID = 0  # Padding after a sentence; never predicted.
BOS_ID = 1  # Begin of sentence.
EOS_ID = 2  # End of sentence.
OOV_ID = 3  # Any word outside the vocabulary.
NUM_SPECIAL_TOKENS = 4
