"""``python -m bench.recovery``: the table."""

from bench.recovery.table import main

if __name__ == "__main__":
    main()
