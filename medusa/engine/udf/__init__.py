"""Functions and classes of users, called and checked: ``calls`` looks at what they give back, ``answers``
keeps it for a log, ``key_state`` is the object that a class gets for each key, ``process_*`` gathers
what a step gave.
"""
