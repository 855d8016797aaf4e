"""What two parties have signed.

``terms`` is the document: what may be moved, for how much, how long. ``states`` is the table of its life,
with the names of the Dataspace Protocol. Signatures are asked for and checked through ``medusa.ports``.
"""
