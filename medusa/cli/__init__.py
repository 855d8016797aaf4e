"""The ``medusa`` command: ``main`` has the commands, and each file is what one of them does. A new one: its
file here, its name in ``main``. Everything heavy is imported by the command that needs it.
"""
