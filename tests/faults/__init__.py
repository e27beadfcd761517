"""Faults by the thousand: a recorded random schedule of faults, and every byte compared with the undisturbed run.

    python -m tests.faults --seed 7 --faults 2000 --kinds state recent attempts files parts
    python -m tests.faults --seed 7 --faults 60 --kinds spark
    python -m tests.faults --list

A *kind* is one thing that breaks, in one place (`kinds`); a *fault* is one injection of it, drawn from the seed. What comes of it
is one of these (`record`):

    same      the run ended, and gave the bytes of the undisturbed one
    refused   it stopped with words that name what is broken, and what it had given before is a beginning of the undisturbed run's
    differs   anything else. This must not be: it is printed with all that is needed to see it again

Rooms: `cells` (Spark's cells without Spark: state, shared memory, attempts), `files` (small files and parts), `threads`
(lying sources, interrupts, readers that stop), `processes` (threads in a process that is killed or stopped), `on_spark` (a
session of Spark's own, its processes, its checkpoint folder).
"""
