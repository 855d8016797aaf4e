"""A client of a federation: ``md.connect``. ``federation`` has what can be asked and ordered; parts by
subject do it, each made of what it needs. ``client_loop`` drives the client's protocol in a thread of its
own. What is sent and kept is decided in ``medusa.wire.client_mind``.
"""
