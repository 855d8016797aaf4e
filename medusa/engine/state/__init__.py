"""The state of a fragment as files, and back.

``fragment_state`` writes and reads it, ``checkpoint`` is a group of files under a manifest, ``delta``
holds only rows that changed, ``evolve`` says what a changed query can go on with, ``newer_checkpoints``
which may go.
"""
