"""The spec of a fragment: what one node installs, keeps on disk and gets from another, and how much it may
ask for.
"""
