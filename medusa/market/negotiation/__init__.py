"""Which task runs at whom, for which price: one mind a participant.

``trader`` is the one door: ``receive``, ``tick`` and what its driver reports come in; what is to be done
is in its effects, in order. ``medusa.market.contract.states`` is the table of one negotiation.
"""
