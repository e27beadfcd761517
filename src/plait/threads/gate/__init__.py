"""The gate: many sources in, one totally ordered stream out, the same to every reader.

words         the memory, word by word        codes      what compiled calls answer
frontier      progress and who holds it       calls      entering and leaving a call, heartbeats, ends
elastic       announcing and removing         flow       limits, memory, sleeping
nodes, skiplist                               ring
either        whichever of the two a run has  gates      the gate as Python holds it
epochs        shares of an operator's state, and the tuples that switch their map

What a gate promises, to whom, and what it does not. There are two, behind one interface: `SkipListGate` (ScaleGate and T-Gate,
elastic as ESG) and `RingGate`. Each promise is a test, and each is argued in the module that keeps it.

1. **One total order, exact.** Readers see tuples by (ts, input, source, seq). Ties between sources are settled by their
   declared rank, never by who came first. Kept by: `nodes.before` (one right place for every key), `ring.survey` (leaves by
   rank).
2. **Every reader the same sequence.** A reader's next tuple depends on the tuples alone; threads decide only when.
3. **Nothing before it is ready.** ts < frontier, strictly; the frontier is the least progress of all sources. A declared
   source that has not spoken holds it at -infinity, an ended or removed one lets go. Kept by `frontier.settle`.
4. **Nothing lost, nothing twice.** A tuple is in the store before the promise that covers it; memory is used again only
   when nobody can reach it (`flow.free`, `skiplist.pin`).
5. **Progress.** No call waits inside for another thread: a failed CAS means that another call has succeeded, and the
   second looks at versions repeat only if the set of sources or readers has changed. What one thread can do by
   stopping: a source holds the frontier; a reader holds memory, until the sources are full; a source stopped inside `add`
   holds the memory of what stands after its pin. A source is held back only while something is ready to be read, so
   waiting ends if readers read.
6. **Bounded.** Memory is fixed when the gate is made. Ready and unread tuples beyond `capacity` hold their source back (FULL);
   with unready ones beyond `pending` the answer is STUCK: another source holds the frontier. Both are per source. Never
   drops, never grows.
7. **Elastic.** Sources and readers come and go while the gate runs; of concurrent calls for the same ids, or with the
   same `change` number, exactly one takes effect. A source is announced with the least ts it may bring, which must not be below
   what a reader has been promised: else BEHIND, and nothing has changed.

What it does not promise: when a tuple becomes ready (only that it does, once the frontier has passed it); that two
readers are at the same place; that a read gives all that is ready (it gives some, if there was some when it began); fairness
between threads that compete for a core; anything at all to two threads that push one source at once, but an error.

A source's tuples enter sorted by (ts, seq): disorder is settled in front of the gate (`threads.input.push`). Who pushes calls
`add_waiting` of the run's gate from Python, a batch at a time, and so do TuML's update threads with `read_waiting`; compiled
loops of joins and of shares call `either`. All are compiled, take the memory, slots and seats as numbers and int64 columns, and
answer with counts or `codes`. `calls` and `elastic` serve both gates.
"""

from plait.threads.gate.gates import Gate, RingGate, SkipListGate

#: Those that carry a run, by their name in `on_threads(gate=...)`; `auto` is the ring.
GATES = {"auto": RingGate, "ring": RingGate, "skiplist": SkipListGate}

__all__ = ["GATES", "Gate", "RingGate", "SkipListGate"]
