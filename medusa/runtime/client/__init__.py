"""A client of a federation: ``md.connect``. Methods by subject; ``client_loop`` drives the client's
protocol in a thread of its own. What is sent and kept is decided in ``medusa.wire.client_mind``.
"""
