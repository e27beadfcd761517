"""What an engine stands on: its streams, and the memory that its sources and its workers share. It is made first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from plait.core.machine.line import LINE, lines
from plait.query.bind import Bound
from plait.query.stream import Stream
from plait.threads import words as shared
from plait.threads.gate import GATES, Gate
from plait.threads.input.arenas import CHUNK, Arenas
from plait.threads.input.intake import QUERY, StreamIntake
from plait.threads.life.pause import Pauser
from plait.threads.life.together import Together
from plait.threads.options import Options
from plait.threads.parts import Seated
from plait.threads.stats import Latency, waiting_for

#: Tuples of a source that are ready and that workers have not read, unless capacity= says otherwise: for four workers. For more
#: it grows with them, since everybody waits for the one that waits for a processor.
CAPACITY = 1 << 15


def inputs_of(bound: Bound) -> dict[str, Stream]:
    """The streams an operator reads, each once; other operators' results are streams here too, see `dag`."""
    return {str(i.node.name): i.node for i in bound.inputs if isinstance(i.node, Stream)}


class Ground:
    """See the module.

    `readers` take up to `most` tuples at once; what sources write of a row has so many `columns`; `events`: how many of
    its own the engine's threads sleep on; `switches`: epochs will need a source of their own; `positions`: see `StreamIntake`.

    `front` is None for an operator that reads only other operators' results. `inputs`: by stream, which inputs of the
    operator it is (two for a stream joined with itself). `ties`: by input, its place among those at one ts, if it is not its
    number. `control`: the run's control words, then a line for each
    event.
    """

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], options: Options, together: Together, *, readers: int,
                 most: int, columns: int = 0, events: int = 0, switches: bool = False, positions: bool = True,
                 kind: type[Gate] | None = None, ties: tuple[int, ...] | None = None) -> None:  # fmt: skip
        self.bound, self.options, self.together = bound, options, together
        streams = inputs_of(bound)
        # What reads nothing but other operators' results can't run ahead of them.
        self.front = together.front if any(stream.source != QUERY for stream in streams.values()) else None
        self.names = [str(i.node.name) for i in bound.inputs]  # of the streams, by input
        self.inputs = {name: tuple(k for k, n in enumerate(self.names) if n == name) for name in streams}
        given = {str(each.node.name): each for each in bound.inputs}
        self.ties = ties or tuple(range(len(self.names)))
        self.intakes = {
            name: StreamIntake(
                stream, given[name].made if given[name].steps else schemas[name], positions=positions,
                steps=given[name].steps,
            )
            for name, stream in streams.items()
        }  # fmt: skip
        self.slots = self._slots(streams, options.max_sources) + (self.front is not None)
        pending = options.pending or min(max((1 << 21) // self.slots, 1 << 13), 1 << 16)
        capacity = options.capacity or max(CAPACITY, CAPACITY // 4 << (readers - 1).bit_length())
        self.gate = (kind or GATES[options.gate])(
            slots=self.slots + switches, readers=readers, capacity=capacity, pending=max(pending, 2)
        )
        size = 1
        while size < self.gate.ring + most + CHUNK:
            size *= 2
        self.arenas = Arenas(self.slots, size, columns)
        self.control = lines(shared.CONTROL_WORDS + events * LINE)
        self.control[shared.EVENTS] = events
        self.latency = Latency()

    def _slots(self, streams: Mapping[str, Stream], most: int | None) -> int:
        """Room for so many sources; `most` is what the user says of those that are pushed.

        A stream without declared sources gets 8 places, or 16 if a column names its sources; with one more a stream,
        for «no source yet», and one for all. More sources than that are refused, and the message says max_sources=.
        """
        if most is not None:
            return most + sum(len(self.inputs[name]) for name, stream in streams.items() if stream.source == QUERY)
        slots = 1
        for name, stream in streams.items():
            declared = stream.declared()
            # A stream that has but one source, as most do, still may turn out to have more.
            known = len(declared) if declared is not None else (16 if stream.source is not None else 8)
            slots += known * len(self.inputs[name]) + 1
        return slots

    def pauser(self, workers: Sequence[Seated]) -> Pauser:
        """What lets these workers stand still."""
        return Pauser(self.gate.words, self.control, lambda: waiting(workers), self.options.stall_after_s)


def waiting(workers: Iterable[Seated]) -> str:
    """Who waits for whom."""
    return "; ".join(f"worker {w.number} {waiting_for(w.words)}" for w in workers)
