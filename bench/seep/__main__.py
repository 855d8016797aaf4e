"""``python -m bench.seep NAME``: one of the experiments."""

import sys

from bench.seep.command import main

if __name__ == "__main__":
    sys.exit(main())
