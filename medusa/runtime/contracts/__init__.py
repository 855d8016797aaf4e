"""Contracts as files: what two companies read, write, sign and give each other.

    terms_fields      the fields of a contract about load, as a document has them
    terms_document    such a document, read and written: TOML
    content           a contract about the rows of a stream: a file of the Open Data Contract Standard
    contract_files    signed ones
    receipt_files     receipts of work done under one
    example_receipts  a contract with receipts, to try a statement on

What is signed, and what contradicts itself, is in ``medusa.market.contract``.
"""
