"""``python -m bench.delay``."""

import sys

from bench.delay.command import main

if __name__ == "__main__":
    sys.exit(main())
