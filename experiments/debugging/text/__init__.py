"""The study of document 004, section 5: models that find a fault of tokenisation."""
