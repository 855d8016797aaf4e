"""What a connection point keeps: numbered rows that stay for a while, to be read again.

``history`` appends and drops segments, ``records`` is their form in bytes (a record batch under a
CRC-32C), ``opening`` takes a folder up after a crash, ``views`` reads a range as a table. Where
segments lie is the business of a port (``medusa.ports.Segments``). The connection operator and
recordings import it.
"""
