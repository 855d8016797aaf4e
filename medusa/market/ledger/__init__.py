"""Who owes whom, and why.

Each interval both parties read how many rows a task has had; the provider's reading, accepted by the
consumer, is a receipt that both have signed. From receipts alone anybody of the two works out what is
owed. Accounts are in double entry: all of them together are always zero.
"""
