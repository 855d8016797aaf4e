"""Upstream backup: senders keep what states still need, and whoever takes over reads it again from a mark.

``reach`` says how far back states reach, ``decisions`` what can't be made again as it was, ``marks`` what the
owner tells, ``warm_up`` how a successor begins.
"""
