"""The text study of [Augenstein20], section 5: models that find a bug in tokenisation."""
