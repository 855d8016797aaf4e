"""Rows in files, standard input and output: formats, readers and writers of ``medusa run`` and ``medusa
publish``.
"""
