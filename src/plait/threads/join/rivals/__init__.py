"""The systems that the papers measure against, as far as the comparison needs: time windows, scans, inner joins, no order.

celljoin                one coordinator cuts windows anew for every tuple
handshake               two streams flow past each other through a chain of workers
low_latency_handshake   the same chain, with tuples hurried through it and kept at one worker each
moving                  what the three share: windows in shared memory, in which tuples move by their position
"""
