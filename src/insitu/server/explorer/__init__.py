"""The explorer: a page for browsers that shows archives, their values and their chunks, and its API.

`GET /` is the page, `/explorer/page/…` are its files, `/explorer/api/…` is what it asks for. The API
reads by the same archives, caches, limits, roots and tokens as all other routes.
"""

from insitu.server.explorer.api_routes import explorer_routes

__all__ = ["explorer_routes"]
