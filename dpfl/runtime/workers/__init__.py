"""Workers on other machines: how a run reaches them, and what they are trusted with."""
