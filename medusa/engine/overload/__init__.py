"""What is left out of a run under overload, by the quality of service of its outputs (Aurora, VLDB Journal
2003).

``controller`` decides how much, ``road_map`` what first, ``drop_sites`` where it harms nobody else;
``drop_operator`` stands on an arc and leaves rows out, ``drop_set`` is all of them; ``window_filter``
keeps back windows that lack rows. ``qos_scheduler`` chooses whose work is next when several outputs
wait.
"""
