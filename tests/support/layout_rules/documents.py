# SPDX-License-Identifier: MIT
"""Rules of README and docs: links lead somewhere, tables match their sources."""

import posixpath
import re
from collections.abc import Iterator

import environment_table

from layout_rules.tree import Tree, matching, numbered, rule

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")
ENVIRONMENT_ROWS = "csrc/abi/environment.def"
ENVIRONMENT_PAGE = "docs/reference/environment.md"
# Words that begin like our variables but are macros and options of the build.
NOT_VARIABLES = {"ROCPY_FUNCTION", "ROCPY_VARIABLE", "ROCPY_EXTENSION", "ROCPY_SANITIZE", "ROCPY_PYTHON"}


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code fences."""
    fenced = False
    for number, line in numbered(text):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as renderers of Markdown make them."""
    headings = set()
    for _, line in prose(text):
        if match := re.match(r"#+\s+(.*)", line):
            heading = re.sub(r"[^\w\- ]", "", match[1].strip().lower().replace("`", ""))
            headings.add(heading.replace(" ", "-"))
    return headings


@rule(
    {"docs/bad.md": "[x](nowhere.md)\n"},
    {"docs/bad.md": "[x](#no-such-heading)\n"},
    {"docs/bad.md": "# A\n[x](../README.md#no-such-heading)\n"},
)
def links_lead_somewhere(tree: Tree) -> Iterator[str]:
    """A relative link names a file of the tree, and its anchor a heading there."""
    for path, text in matching(tree, suffixes=(".md",)):
        for number, line in prose(text):
            for target in LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                full = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
                if full not in tree and not any(other.startswith(full + "/") for other in tree):
                    yield f"{path}:{number}: {target} leads nowhere"
                elif anchor and full in tree and anchor not in anchors(tree[full]):
                    yield f"{path}:{number}: {target}: no such heading"


@rule(
    {"README.md": "make demo\n\n# rocpy\n\n```sh\nmake demo\nmake test\n```\n\n![x](x.svg)\n"},
    {"README.md": "# rocpy\n\nWords first.\n\n    make demo\n    make test\n\n![x](x.svg)\n"},
    {"README.md": "# rocpy\n\n```sh\nmake demo\nmake test\n```\n\n![x](x.svg)\n" + "line\n" * 120},
    {"README.md": "# rocpy\n\n```sh\nmake demo\nmake test\n```\n\n![x](x.svg) ![y](y.svg)\n"},
)
def readme_is_a_title_two_commands_and_a_picture(tree: Tree) -> Iterator[str]:
    """The first thing a reader sees is the name and what to type; there is one picture; the whole is short."""
    text = tree.get("README.md", "")
    first = [line.split("  #")[0].strip() for line in text.splitlines() if line.strip() and not FENCE.match(line)][:3]
    if first != ["# rocpy", "make demo", "make test"]:
        yield f"README.md:1: begins with {first}, not with its title, `make demo` and `make test`"
    pictures = re.findall(r"!\[[^\]]*\]\([^)]*\)|<img", text)
    if len(pictures) != 1:
        yield f"README.md: {len(pictures)} pictures; it should have one"
    if text.count("\n") >= 120:
        yield f"README.md: {text.count(chr(10))} lines; it should have less than 120"


@rule(
    {ENVIRONMENT_ROWS: 'ROCPY_VARIABLE(ROCPY_NEW, "1", core, "*", "Is not in the table.")\n'},
    {ENVIRONMENT_PAGE: "<!-- begin: environment -->\n<!-- end: environment -->\n"},
)
def environment_table_matches_the_rows(tree: Tree) -> Iterator[str]:
    """The docs' table of variables is made from the rows."""
    page = tree.get(ENVIRONMENT_PAGE, "")
    try:
        fresh = environment_table.renew(page, tree[ENVIRONMENT_ROWS])
    except ValueError as error:
        yield f"{ENVIRONMENT_PAGE}: {error}"
        return
    if fresh != page:
        yield f"{ENVIRONMENT_PAGE}: differs from {ENVIRONMENT_ROWS}; run `make tables`"


@rule(
    {"docs/bad.md": "Set `ROCPY_NO_SUCH_THING=1`.\n"},
    {"rocpy/cli/bad.py": '# SPDX\nHINT = "set ROCPY_NO_SUCH_THING=1"\n'},
)
def variables_that_are_named_exist(tree: Tree) -> Iterator[str]:
    """A text that tells the reader to set a variable names one that is read."""
    # The contract's own constants begin with the same letters.
    contract = {
        name for _, text in matching(tree, "csrc/abi/", suffixes=(".h",)) for name in re.findall(r"\bROCPY_\w+", text)
    }
    known = {name for name, *_ in environment_table.rows(tree[ENVIRONMENT_ROWS])} | contract | NOT_VARIABLES
    for path, text in [*matching(tree, suffixes=(".md",)), *matching(tree, "rocpy/", suffixes=(".py", ".pyx"))]:
        for number, line in numbered(text):
            for name in re.findall(r"\bROCPY_[A-Z_]+[A-Z]\b", line):
                if name not in known:
                    yield f"{path}:{number}: {name} is no row of {ENVIRONMENT_ROWS}"
