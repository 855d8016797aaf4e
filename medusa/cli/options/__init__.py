"""Options that several commands have: the keys with which a node is called, and a query from a file."""
