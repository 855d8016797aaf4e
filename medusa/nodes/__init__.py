"""A node without its IO: events in, effects out.

``node`` is the one door: ``receive``, ``tick`` and what the driver reports (``reports``) come in, ``outbox``
holds what is to be done, in order. ``message_table`` is the table by which a message is let in and finds its
owner. ``medusa.runtime.node`` performs it with ZeroMQ and a disk, ``medusa.sim`` in virtual time. Here time
is an argument, nothing is read or written, and nothing is random.
"""
