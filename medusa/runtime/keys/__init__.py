"""Keys in files: CURVE pairs of nodes and clients, Ed25519 pairs of participants."""
