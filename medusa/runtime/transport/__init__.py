"""Frames between processes over ZeroMQ: ``zeromq`` is the whole; ``zap`` is who may connect,
``receive_meter`` what unfinished messages may hold, ``outgoing`` and ``send_queue`` what waits for a
peer, ``refusals`` what is said of it.
"""
