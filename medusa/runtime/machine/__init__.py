"""This machine: clock, signals, locks of folders, threads, an event loop, CPU and memory used. Knows nothing
of Medusa.
"""
