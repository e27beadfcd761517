"""Bad input by the hundred thousand: whatever comes from outside is taken, or refused in words of ours.

    python -m tests.fuzz inputs --kind sql conditions --seed 20 --cases 100000
    python -m tests.fuzz inputs --kind sql --seed 20 --case 4711

A *kind* is a door of plait's: SQL text, a Parquet file, the arguments of the command. A *case* is one input at one door, a
function of the kind, the seed and a number. What may come of it: it is *taken*, or *refused* by one of plait's errors
(`plait.errors`; of the command an exit code and its words). Everything else is a *finding*: another exception, a process that
ends, more than `LIMIT_S` seconds of work, more than `LIMIT_MB` more memory.

`mutate` changes texts, bytes and trees; `texts`, `files`, `described`, `stored`, `given` have the doors; `kinds` lists them;
`hammer` runs cases in a child process, many in one, and starts another where one ends. `test_inputs.py` is the short form.
"""
