"""Commands that attack: lower bounds on epsilon, membership, exposure."""
