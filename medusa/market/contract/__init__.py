"""What two parties have signed.

    terms      the terms of a contract about load; ``checks``: what contradicts itself
    signed     the documents that both sign, byte by byte; ``standing``: whether one counts
    states     the table of its life, with the names of the Dataspace Protocol
    desk       the one door: what is proposed, accepted, revoked, and what partners say (``messages``)
    register   the contracts that a participant has; ``records``: what it keeps of all that

Signatures are asked for and checked through ``medusa.ports``.
"""
