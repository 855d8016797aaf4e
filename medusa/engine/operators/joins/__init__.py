"""Operators that meet rows by key: joins of two streams, keyed tables and look-ups in them, distinct."""
