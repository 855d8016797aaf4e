"""Which task runs at whom, for which price: one mind a participant.

``trader`` is the one door: ``receive``, ``tick`` and what its driver reports come in; what is to be done
is in its effects, in order. ``medusa.market.contract.states`` is the table of one negotiation.

    consumer, aways       negotiations that we began; tasks of ours that are away
    provider, guests      negotiations that others began; tasks of others that are here
    requests, prices      whom to ask for what, for how much
    answers, chains       what to take for how much; what to pass on for it
    heralds               what is said of our price
    books, contract_book  what runs where, and by which contract it may
    backoff, policies     whom not to ask again yet; what the owner wants
    decisions, explaining what was decided, and why: status, dry run, explain
    kept                  what outlives a restart
"""
