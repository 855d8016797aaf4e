"""The configuration of a node: text in, checked settings out. Reads no file.

``settings`` is the whole; each ``settings_*`` is one table of the file, its fields declared by ``fields``.
"""
