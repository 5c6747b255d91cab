"""Workers on other machines: how a run reaches them, and how it protects itself from them."""
