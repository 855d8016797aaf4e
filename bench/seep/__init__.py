"""The experiments on fault tolerance and scale-out of SEEP (SIGMOD 2013), over real processes, one name each:

    python -m bench.seep recovery       recovery time over rate and interval of checkpoints, three schemes
    python -m bench.seep wordcount      the same on the authors' windowed word count
    python -m bench.seep parallel       one node or two go on with a lost state
    python -m bench.seep overhead       what checkpoints cost, over state and interval, and what they buy
    python -m bench.seep threshold      from which load on a box gets another node
    python -m bench.seep allocation     nodes given by a policy beside nodes given by hand

Their query of tolls and its rating (L) aren't here. Nodes, traffic, kills and accounts are those of
``bench.recovery``, the boxes that scale those of ``medusa demo scale``. Of their figures only what the text
says of them could be read where this was written: so beside our curves stands the shape of theirs, drawn
from those words (``published``), and what they say is held against what was measured.

``chain`` has the nodes and one run with a loss; ``words`` and ``keyed`` queries, rows and accounts;
``scaled`` one run with ``[scale]``.
"""
