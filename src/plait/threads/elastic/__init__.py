"""Threads that come and go while a run goes on: maps of shares, who serves them, when to change them."""
