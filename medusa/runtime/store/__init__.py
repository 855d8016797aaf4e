"""Files: groups that are there whole or not at all (``folder_store``), logs that only grow (``journal``),
segments of histories, and what spills while a run lasts. They implement ports of ``medusa.ports``.

``node_store`` is the table of the places where a node may keep its state, ``store`` of its configuration:
``node_folder``, ``no_store``. What a place proves before rows leave is said in
``medusa.nodes.fragment.durability``; checkpoints in a secondary's memory are in
``medusa.nodes.recovery.held_checkpoint``.
"""
