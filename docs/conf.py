"""How the documentation is built: `make docs`, where every warning is an error."""

project = "insitu"
author = "The insitu developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "insitu"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
