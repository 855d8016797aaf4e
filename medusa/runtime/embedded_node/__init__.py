"""``md.node``: a whole node inside a program."""
