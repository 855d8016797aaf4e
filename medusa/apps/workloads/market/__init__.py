"""``medusa demo market``: owners whose nodes trade load by contract while rows flow."""
