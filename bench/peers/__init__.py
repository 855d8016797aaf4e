"""One module per engine; each has an ``Engine`` (see ``bench.peers.base``)."""
