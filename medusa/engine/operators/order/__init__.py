"""Operators that put rows in order: SUnion and BSort, WSort, and resample, which puts them on regular
times.
"""
