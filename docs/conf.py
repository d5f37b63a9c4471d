"""How the documentation is built: `make docs`, where every warning is an error."""

import os
import sys
from pathlib import Path

import insitu

project = "insitu"
author = "The insitu developers"
version = release = insitu.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "substitution"]
myst_substitutions = {"version": release}
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"  # pinned by the extra `docs`, as is Sphinx: pages of an old version can be built again
html_title = f"insitu {release}"
html_static_path = ["_static"]
html_css_files = ["notebooks.css"]
html_show_copyright = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
default_role = "code"
napoleon_google_docstring = False

# The notebooks of the gallery are run anew, each in an empty folder of its own, and an error ends the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
# `insitu` on their command lines is the one of this environment, and their server is on this machine.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["no_proxy"] = "*"
