"""Shared by the parsers of all formats: range scheduler, read cache, field access, sibling
files.
"""
