"""Engines: where the portions of a scan or of a large reduction run.

This process, an executor of `concurrent.futures`, or Dask. All of them merge the results of portions in the same tree,
whose branches are given by the portions alone, so that they give the same bits. An engine distributes; Dask also
computes again what is lost with a worker.
"""
