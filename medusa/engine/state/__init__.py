"""The state of a fragment as files, and back.

``fragment_state`` writes and reads it, ``checkpoint`` is a group of files under a manifest, ``delta``
holds only rows that changed, ``evolve`` says what a changed query can go on with, ``newer_checkpoints``
which may go.

A box gives its state as small numbers and Arrow tables (``Operator.save_more``) and takes them back
(``load_more``, which checks every number; ``upgrade`` for an earlier ``state_format``).
``fragment_state`` makes files of them and says in ``fragment.json`` of each box what it was
(``query/signature``: kind, parameters that aren't their default, columns that come in). ``evolve``
compares that with a changed query, and tells boxes that begin empty the boundaries of this moment.
``checkpoint`` seals groups of files in a ``Store`` and keeps chains; ``delta`` finds what changed:
``native/base/digest.c`` gives each row 128 bits, and the runs by which a table is made of an earlier one.
``capture`` is what a state is taken for: boxes that note what changes (windows: ``native/state/changes.c``;
rows with numbers: ``row_changes``) then give only that, and nothing of theirs is compared.
``background_copy`` is state that is copied piece by piece (``runtime/machine/state_pieces`` says when on a
node, ``engine/run/checkpoints`` in a program): of a
window by ``native/state/snapshot.c``, which copies 64 groups ahead of a row that changes one of them.
"""
