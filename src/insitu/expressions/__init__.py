"""Expressions: what is computed of stored arrays, as frozen nodes.

A stored array is the simplest expression. `nodes` has the kinds of nodes, `element_operations` and `moves` make
them, `evaluate` computes their values box by box, `reading` reads the leaves. Nothing here knows NumPy's
protocols, xarray or a server.
"""
