"""``python -m medusa``: the command, where no ``medusa`` is on the path."""

from medusa.cli.main import main

if __name__ == "__main__":
    main(prog_name="medusa")
