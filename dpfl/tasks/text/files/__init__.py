"""Readers of text in files: StackOverflow, files of users, public text."""
