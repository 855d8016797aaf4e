"""A node without its IO: events in, effects out.

``node`` is the one door: ``receive``, ``tick`` and what the driver reports come in, ``outbox`` holds
what is to be done, in order. ``medusa.runtime.node`` performs it with ZeroMQ and a disk, ``medusa.sim``
in virtual time. Here time is an argument, nothing is read or written, and nothing is random.
"""
