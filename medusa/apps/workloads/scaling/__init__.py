"""``medusa demo scale``: a box spreads over idle nodes while its load rises, and comes back when it falls."""
