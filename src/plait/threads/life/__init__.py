"""How threads of a run begin, stand still and end.

`together` is for all engines of a run, `pause` and `halt` for the workers of one, `guard` for what threads share, `affinity` for
the cores they are bound to.
"""
