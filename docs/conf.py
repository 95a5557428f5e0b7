# SPDX-License-Identifier: MIT
"""The site: `make site` builds it, with no network, from these pages and the docstrings of the installed package."""

from __future__ import annotations

import enum
import json
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools" / name) for name in ("metadata", "tables")]
from project_page import file_address, replace_links  # noqa: E402
from readme_table import COLUMNS, RESULTS  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Empty until the repository has an address: links to files outside the pages are plain text until then.
ADDRESS = PROJECT["tool"]["rocpy"]["repository"]

project = PROJECT["project"]["name"]
author = PROJECT["project"]["authors"][0]["name"]
release = version = PROJECT["project"]["version"]
copyright = author  # noqa: A001 (Sphinx's name)

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "index"
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_title = f"{project} {release}"
# What `draw_results` makes is no part of the sources.
PLOTS = ROOT / "build" / "site" / "plots"
html_static_path = ["_static", str(PLOTS)]
html_css_files = ["site.css"]
# Pages without others beside them need no list of these.
html_sidebars = {page: [] for page in ("index", "install", "getting-started", "performance")}
html_show_sourcelink = False
html_domain_indices = False  # nothing links to them
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    **({"github_url": ADDRESS} if ADDRESS.startswith("https://github.com/") else {}),
}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# Notebooks hold no output: they run when the site is built, and what fails there fails the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "site" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings give types, shapes and units in words
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = True

# The benchmarks that the page of performance shows: a heading, and what the drawing shows.
DRAWN = {
    "overhead": ("A call", "times of one small call, beside numpy, torch and nvmath-python"),
    "matmul": ("Products", "times of products, beside numpy, torch and nvmath-python"),
    "epilogue": ("Fused products", "times of products with epilogues, beside torch and nvmath-python"),
    "custom_epilogue": ("Epilogues of the user", "times of products with an epilogue of the user's, beside torch"),
    "collectives": ("Collectives", "times of all-reduce, beside MPI"),
}

# Pages whose text is a file at the root of the tree.
FROM_ROOT = {
    "project/changelog": "CHANGELOG.md",
    "project/contributing": "CONTRIBUTING.md",
    "project/security": "SECURITY.md",
}


def rewritten(text: str, folder: str, page: str) -> str:
    """Return a page's text with links that lead out of the pages led to the site's own, or to the repository.

    Parameters
    ----------
    text
        Markdown.
    folder
        The folder that its links start from, from the root of the tree.
    page
        The page of the site that shows it.
    """
    pages = {source: name for name, source in FROM_ROOT.items()}
    here = posixpath.join("docs", posixpath.dirname(page))

    def link(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if picture:
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in pages:
            path = f"docs/{pages[path]}.md"
        elif path == "README.md":
            path = "docs/index.md"
        if path.startswith("docs/") and path.endswith(".md"):
            return f"[{words}]({posixpath.relpath(path, here)}{anchor})"
        return f"[{words}]({file_address(ADDRESS, release, path)})" if ADDRESS else words

    return replace_links(link, text)


def on_read(app: Any, page: str, source: list[str]) -> None:
    """Take the text of pages that show a file of the root from there, adapt links, and insert the plots."""
    if (ROOT / "docs" / f"{page}.md").exists():
        name = FROM_ROOT.get(page)
        text = (ROOT / name).read_text(encoding="utf-8") if name else source[0]
        if name:  # read again when that file changes
            app.env.note_dependency(str(ROOT / name), docname=page)
        folder = "" if name else posixpath.join("docs", posixpath.dirname(page))
        source[0] = rewritten(text, folder, page)
        if page == "performance":
            source[0] = source[0].replace("<!-- plots -->", plots())


def leave_out(app: Any, what: str, name: str, found: Any, skip: bool, options: Any) -> bool | None:  # noqa: ARG001
    """Leave rocpy's errors to their own page, whatever other modules export them too."""
    own = isinstance(found, type) and found.__module__ == "rocpy.errors"
    return True if own and app.env.docname != "api/errors" else None


def list_members(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """List an enumeration's members with their values, aliases included, before the examples."""
    if isinstance(found, enum.EnumMeta):
        members = (f"``{member}`` = ``{value.value!r}``" for member, value in found.__members__.items())
        at = lines.index("Examples") if "Examples" in lines else len(lines)
        lines[at:at] = ["Members: " + ", ".join(members) + ".", ""]


def unlink_words(app: Any, doctree: nodes.document) -> None:  # noqa: ARG001 (Sphinx's signature)
    """Show types that are words, such as stream, as text; Sphinx links them to any attribute of that name."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link["reftype"] == "class" and link["reftarget"].islower() and "." not in link["reftarget"]:
            link.replace_self(addnodes.literal_emphasis("", link["reftarget"]))


def merge_parameters(app: Any, doctree: nodes.document) -> None:  # noqa: ARG001 (Sphinx's signature)
    """Describe parameters of one description in one item; napoleon repeats the description for each."""
    for items in doctree.findall(nodes.bullet_list):
        kept = last = None
        description = ""
        for item in list(items.children) if isinstance(items.parent, nodes.field_body) else ():
            name = item[0][0]
            if kept is not None and item.astext().removeprefix(name.astext()) == description:
                kept.insert(kept.index(last) + 1, [nodes.Text(", "), name])
                items.remove(item)
            else:
                kept, description = item[0], item.astext().removeprefix(name.astext())
            last = name


def measured() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the title of a machine and instruction set, an image's name, and the results that it shows."""
    for title, folder in COLUMNS.items():
        for name in DRAWN:
            path = RESULTS / folder / f"{name}.json"
            document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
            if document["rows"]:
                yield title, "-".join(filter(None, (folder, name))) + ".png", document


def draw_results(app: Any) -> None:  # noqa: ARG001 (Sphinx's signature)
    """Draw the measured results that the page of performance shows."""
    from rocpy.cli.measured.drawing import draw

    for title, image, document in measured():
        draw([document], PLOTS / image, title)


def plots() -> str:
    """Return the sections of the page of performance: one for each machine and instruction set, with its drawings."""
    lines: list[str] = []
    for title, image, document in measured():
        if f"### {title}" not in lines:
            lines.append(f"### {title}")
        heading, words = DRAWN[document["benchmark"]]
        picture = f'<img src="_static/{image}" alt="{title}: {words}">'
        lines += [f"#### {heading}: {title}", f'<div class="plot">{picture}</div>']
    return "\n\n".join(lines)


def setup(app: Any) -> dict[str, bool]:
    """Register what this file adds."""
    app.connect("builder-inited", draw_results)
    app.connect("source-read", on_read)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", list_members, priority=400)  # before napoleon
    app.connect("doctree-read", unlink_words)
    app.connect("doctree-read", merge_parameters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
