"""``medusa pool``: starts nodes as they are lacked, and ends them when they have had nothing for long.

``pool_file`` reads what it is told, ``pool_loop`` asks the nodes as a client and does what
``medusa.nodes.pool`` decides, ``local_processes`` runs nodes on this machine. Nodes themselves start nothing.
"""
