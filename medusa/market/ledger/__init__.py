"""Who owes whom, and why.

Each interval both parties read how many rows a task has had; the provider's reading, accepted by the
consumer, is a receipt that both have signed. From receipts alone anybody of the two works out what is
owed. Accounts are in double entry: all of them together are always zero.

``ledger`` is the one door for a party: what its driver and its partners say comes in; what is to be kept,
said and stopped is in its effects, in order. A contract is a book: ``provider_book`` meters, reads and stops,
``consumer_book`` compares and signs, ``book`` is what both have, and ``chain`` what follows from receipts.
``reading_states`` is the automaton of one reading. ``statement`` needs receipts only; ``client_accounts`` is
for clients who have no contract. docs/ledger.md says what is signed when, and what it can cost.
"""
