"""One file per command, in folders by subject. `dpfl.cli.catalogue` finds them."""
