"""The page of a run: where it is served, and for how long."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from plait.errors import RunError
from plait.watch.sampling import Sampling
from plait.watch.watched import Watched, of_threads

HOST, PORT = "127.0.0.1", 4747
#: So many ports are tried where nobody has named one.
TRIED = 20


def page(run: Any, *, host: str = HOST, port: int | None = None, title: str | None = None,
         hosts: tuple[str, ...] = ()) -> Page:  # fmt: skip
    """Serve a page that shows what a run on threads is doing, and why results wait.

    It needs `pip install "plait[page]"`. The page can change nothing. Whoever reaches the port may read it: names of streams and
    sources, times and counts, never a value of a row. For a query on Spark there is `plait.spark.page`.

    Args:
        run: What `query.on_threads(...)` gave. It is not kept alive by its page.
        host: The address to serve on. Another than a loopback one lets others in.
        port: The port; 0 for any that is free. None: 4747, or the next one that is free.
        title: What the page calls the run. None: the query's name.
        hosts: Names by which browsers and scrapers may ask for it, besides `host`, this machine's name and numeric addresses.

    Returns:
        A `Page`: `page.url` is where it is. Close it, or use it in a `with` block.

    Raises:
        RunError: What it needs is not installed, or the port is taken.
        QueryError: `run` is no run on threads.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
        ...     with plait.page(run, port=0) as page:
        ...         page.url.startswith("http://127.0.0.1:")
        True
    """
    return Page(of_threads(run, title), host=host, port=port, hosts=hosts)


class Page:
    """A page that is served. `plait.page` and `plait.spark.page` make one.

    Attributes:
        url: Where it is.
        sampling: What has been seen of the run, and the thread that looks.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
        ...     page = plait.page(run, port=0)
        ...     page.close()
    """

    url: str
    sampling: Sampling

    def __init__(self, watched: Watched, *, host: str = HOST, port: int | None = None, hosts: tuple[str, ...] = (),
                 every_s: float = 1.0) -> None:  # fmt: skip
        try:
            from plait.watch.server import Server
        except ImportError as error:
            raise RunError(
                f"The page needs {error.name}, which is not installed",
                do='Install it: pip install "plait[page]"',
            ) from None
        from plait.watch.log import Reasons
        from plait.watch.spans import Spans

        self._server = Server(host, port, TRIED, PORT, hosts)
        spans, reasons = Spans(watched.title), Reasons(watched)

        def on_look(look: Any) -> None:
            reasons.look(look)
            spans.look(look.run)

        try:
            self.sampling = Sampling(watched, every_s=every_s, on_look=on_look)
        except BaseException:
            self._server.close()
            raise
        self._server.serve(self.sampling)
        self.url = self._server.url

    def close(self) -> None:
        """Serve it no more. A second call does nothing.

        Example:
            >>> page.close()
        """
        self.sampling.stop()
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
