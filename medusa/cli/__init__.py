"""The ``medusa`` command: ``main`` has the commands, and each file is what one of them does. Everything
heavy is imported by the command that needs it.
"""
