"""The commands of ``medusa contract``.

draft      terms to be filled in
offers     propose and accept: signing them
show       what a file says, who has signed it, whether it counts
revoke     the end of one
statement  who owes whom by one, from receipts
"""
