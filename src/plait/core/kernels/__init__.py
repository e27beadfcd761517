"""Compiled functions over arrays: no threads, no Python objects, no allocation in proportion to the window.

They return codes and counts; their callers raise. Positions are indices into a segment's arrays.
"""
