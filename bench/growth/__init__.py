"""How cost grows with the work: one question a file, each ``python -m bench.growth.NAME [--full]``."""
