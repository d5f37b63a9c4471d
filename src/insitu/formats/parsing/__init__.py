"""Shared by all parsers of formats: the range scheduler, the read cache, files beside a file."""
