"""How Sphinx builds the documentation; `make docs` runs it and puts the site into out/docs."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.environment.adapters import toctree
from sphinx.pycode.parser import Parser
from sphinx.search.en import SearchEnglish

# The reference reads the docstrings of kernels; nothing here has to be compiled for that.
os.environ["NUMBA_DISABLE_JIT"] = "1"
# Every document and docstring has its option parser, which looks for translations of its words.
os.environ["LANGUAGE"] = "C"
# Documents are millions of objects that stay: fewer looks for garbage among them save a tenth of
# the time.
gc.set_threshold(200_000, 50, 100)
# Where a definition begins and ends only pages need that quote sources; to tell it for all modules
# took a tenth of the time. The stem of a word was looked for anew on every page that has it.
Parser.parse_definition = lambda parser: None
SearchEnglish.stem = cache(SearchEnglish.stem)


def _titles(toc: nodes.Element) -> nodes.Element:
    """Return a page's table of contents without what is below its title, but for trees of pages."""
    titles = toc.deepcopy()
    for item in titles.children:
        if len(item) > 1:
            trees = list(item.findall(addnodes.toctree))
            if trees:
                item[1][:] = trees
            else:
                item.pop(1)
    return titles


_entry, _short = toctree._toctree_standard_entry, cache(_titles)
# All trees here show titles only, but for each page the headings of all others were copied before
# they were left out; that took a tenth of the time.
toctree._toctree_standard_entry = lambda title, ref, depth, toc, *rest: _entry(
    title, ref, depth, _short(toc), *rest
)
sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parents[1])]

import offcert  # noqa: E402

project = "offcert"
author = "the offcert authors"
project_copyright = f"2026, {author}"
version = release = offcert.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "mathml",
    "notebooks",
    "reference",
    "viewer",
]
html_math_renderer = "mathml"
# What a reader copies from a block of commands are these, not prompts and what is printed.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
exclude_patterns = ["_ext", "certificates"]
html_theme = "furo"
# Code that is wider than the page can be read to its end.
html_static_path = ["_static"]
html_css_files = ["code.css"]
html_title = f"offcert {version}"
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
# Anchors as on GitHub, so that a link works in both places.
myst_heading_anchors = 4

# These take seconds to import, and only base classes of them are needed.
autodoc_mock_imports = ["transformers", "accelerate", "lightning"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# There are none, and looking for them takes seconds; so does a tree of thousands of objects beside
# every page.
autodoc_use_type_comments = False
toc_object_entries = False
autodoc_default_options = {
    "members": True,
    "ignore-module-all": True,
    "show-inheritance": True,
}
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
# What is written there is prose ("mapping of str to int"), in which no name is to be looked up.
napoleon_custom_sections = [("Attributes", "params_style")]

default_role = "backquoted"
nitpicky = True
# A short name in a signature may be that of two classes, of which either will do.
suppress_warnings = ["ref.python"]
# Types of other packages are not documented here.
nitpick_ignore_regex = [
    ("py:obj", r"(?!offcert\.).*"),
    ("py:class", r"(?!offcert\.).*"),
    ("py:exc", r"(?!offcert\.).*"),
    ("py:func", r"(?!offcert\.).*"),
    ("py:mod", r"(?!offcert\.).*"),
]
