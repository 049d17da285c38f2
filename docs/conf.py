"""Sphinx configuration: `make docs` builds the site with warnings as errors."""

import sys
from pathlib import Path

import aucmax

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "aucmax"
author = "The aucmax developers"
copyright = "2026, The aucmax developers"
release = version = aucmax.__version__

extensions = [
    "mathml",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "tutorials/*.md"]
nitpicky = False
nb_execution_mode = "off"  # run_tutorials.py runs the notebooks and keeps their outputs
nb_merge_streams = True
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shape"]

html_math_renderer = "mathml"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_domain_indices = False
html_title = f"aucmax {release}"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e99", "color-brand-content": "#0b6e99"},
    "dark_css_variables": {"color-brand-primary": "#5cc0e8", "color-brand-content": "#5cc0e8"},
}
