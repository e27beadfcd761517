"""A condition or an expression as it was written, read into frozen trees: nothing here says how it is computed.

predicate   a condition, or an expression of one row      trace, sql  Python functions and SQL text, read into
expression  trees                                         textual     functions of text and their constants
types       what each node of a tree is                   regular     regular expressions, for RE2
choice      when, coalesce, concat                        text_calls, sql_functions  these in Python, and in SQL
"""
