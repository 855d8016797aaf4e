"""A market of load between owners who don't trust each other. No IO, no clock, usable alone.

    cost         what load costs its host: private, convex; what one task more would
    contract/    what two parties have signed: terms, documents, their states
    negotiation/ which task runs at whom for which price: offers, answers, one mind a participant
    ledger/      who owes whom and why: readings, receipts, accounts in double entry

A *consumer* owns a task and pays; a *provider* runs it and is paid. Whoever uses the market says what a task
is, how much it was measured to take, and carries out what the minds want done. Money is whole micro-units
of the contract's currency, work whole nano-units (``work``); only what nobody else sees, costs, is a float.
Time is an argument. Nothing here knows of streams: ``nodes`` and ``sim`` do.
"""
