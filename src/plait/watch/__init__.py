"""What a run does, for people and machines who look at it from outside: a page, `plait top`, metrics for Prometheus, logs.

    watched      what is looked at: any executor's run, by a function that says what it tells
    snapshot     that as JSON: the sentence, sources, operators, workers or cells, every number with its unit and meaning
    history      rates and latency over time, and what changed when
    sampling     the thread that looks, once a second
    serving      where the page is, and for how long: `plait.page`
    server       its server (Starlette, uvicorn: `pip install "plait[page]"`), and who may have it
    prometheus   the text of `/metrics`
    top          the same in a terminal
    log, spans   structured logs, and OpenTelemetry's spans where its API is installed

It only reads: nothing here can change a run. What it shows are names of streams and sources, times and counts; never a value
of a row. Words of numbers are `core.metrics`' own, and the sentence is `core.held`'s.
"""

from plait.watch.serving import Page, page

__all__ = ["Page", "page"]
