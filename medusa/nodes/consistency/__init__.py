"""An answer within X while an input is missing, and exact answers afterwards (``delay=`` of an output).

    input missing for X - margin ──> fork: a second instance with a copy of the state ──> tentative lane
                                     the stable instance waits, and goes on when the input is back

``states`` has the automaton of an output stream, ``missing_inputs`` says which inputs are missing and since
when, ``unpublished_sources`` which sources have no publisher at all, ``fork`` is one second instance,
``catching_up`` says when the first one is done with what it waited for, ``new_rows`` has the policies,
``promise_history`` how far what is delayed is due, ``kept_lanes`` what a fork that begins is given again,
``held_state`` what rests since too much waits, and ``delay_bound`` decides:
``FragmentHost`` holds one where an output that it feeds has ``delay=``.

Stable instance and fork are two fragments of one query to the engine, so each gets half of its thread's time
while both have something to do. Of the fork at most ``fork.RUNNING_MAX`` elements are under way, so what is
given to the stable one never waits for more than those. Corrections so run at half the speed of a fragment
that has the thread for itself, or faster: rows of other nodes that are late for the fork never reach it. Once
new rows have waited for the fork for ``delay_bound.LATE_SHARE`` of X, it is served first: the stable instance
is given one element at a time, so it gets on still.

X doesn't hold where the fragment is fed nothing: its outputs are full since readers are slow, its log or a
move of it is behind. The inputs then have credit for one window of bytes each, and what comes by that is
still answered.
"""
