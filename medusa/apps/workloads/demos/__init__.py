"""``medusa demo``: each demonstration as its run, its outcome and its screen."""
