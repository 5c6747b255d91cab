"""Published privacy and loss numbers, and the calculations that reproduce them."""
