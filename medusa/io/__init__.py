"""Rows in files, standard input and output, for ``medusa run`` and ``medusa publish``.

``formats`` is the table of formats; ``readers`` and ``writers`` end with a table each of what reads and
writes them. ``job`` is one run from files to files, ``places`` says what a path or ``-`` stands for.
"""
