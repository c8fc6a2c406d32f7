"""How the site is built, without a network: `python -m sphinx -W --keep-going -j auto docs docs/_build/html`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import bigforest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "extensions"))
from inner_members import INNER_MEMBERS  # noqa: E402

# The kernels that run the pages work in folders of their own and import `page_setup`, which brings the tables there.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(HERE / "extensions"), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # the command bigforest
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

project = "bigforest"
author = "the bigforest developers"
version = release = bigforest.__version__
copyright = "2026, the bigforest developers"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "command_pages",
    "file_tables",
    "house_docstrings",
    "reading_order",
    "result_pages",
]
exclude_patterns = ["_build", "extensions", "_templates"]
templates_path = ["_templates"]
default_role = "code"
smartquotes = False  # -- begins an option

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
# Widgets would be drawn by scripts from elsewhere; no page has one.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

autosummary_generate = True
autosummary_context = {"inner": {name: sorted(members) for name, members in INNER_MEMBERS.items()}}
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "bigforest"
html_favicon = "_static/icon.svg"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["bigforest.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
copybutton_exclude = ".linenos, .gp"
