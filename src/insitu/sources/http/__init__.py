"""Ranges of objects on plain web servers."""
