"""How threads of a run begin, stand still and end.

`end` is a run's, `together` for all of its engines, `pause` and `halt` for the workers of one, `guard` for what threads share,
`affinity` for the cores they are bound to.
"""
