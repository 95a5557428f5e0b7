# SPDX-License-Identifier: MIT
"""Find words that say too little in identifiers, and turns of phrase that must be read twice in docs and messages.

Lists those in identifiers, public and private, docs and messages, and fails if there are any.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Words of every day in the place of the field's nouns: index, slot, rank, device, strategy, group, synchronize, ...
WORDS = re.compile(
    r"places?|given|made|found|kept|ways?|pieces?|settle[sd]?|meets?|met|turned|beside|who|rooms?|lonely|dawdle|mend(?:ed)?"
)
# Names of the public API that are nvmath's.
ALLOWED = frozenset({"AlgorithmCapabilities.out_of_place_result_support"})
# What ROCm's, torch's and Python's docs say otherwise, with what they say.
PHRASES = {
    r"\bleaves? with (?:code )?\d": "exits with",
    r"\bin silence\b": "silently",
    r"\bbits do(?:es)? not depend on\b": "is bitwise identical whatever",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bof the (?:lower|lowest|higher|highest) number\b": "with the lower index",
    r"\b(?:is|are) told\b(?! apart)": "is reported",
    r"(?:^|[.!?:] )Who has\b": "those that have",
    r"(?:^|[.!?:] )What is (?:none|no)\b": "anything that is not",
}
PHRASE = re.compile("|".join(f"({pattern})" for pattern in PHRASES), re.MULTILINE)
# Where private identifiers are looked at, and what is not code in these files.
PRIVATE = ("rocpy", "csrc", "tests/support")
_LITERALS = r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\''
_PYTHON = re.compile(r'("""|\'\'\')[\s\S]*?\1|' + _LITERALS + r"|#[^\n]*")
_NATIVE = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/|#include[^\n]*|" + _LITERALS)
CODE = {
    **dict.fromkeys((".py", ".pyx", ".pxd"), _PYTHON),
    **dict.fromkeys((".cpp", ".hpp", ".h", ".inc", ".def"), _NATIVE),
}
FOREIGN = re.compile(r"NotFound(?:Error)?$|^out_of_place_result_support$")  # names of Python, HIP and nvmath
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def banned(identifier: str) -> bool:
    """Return whether an identifier has one of the words; "in place" is a term."""
    parts = PARTS.findall(identifier.rpartition(".")[2].replace("in_place", ""))
    return identifier not in ALLOWED and any(WORDS.fullmatch(part.lower()) for part in parts)


def phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, what to write instead) of each banned phrase; a phrase may run over the end of a line."""
    flat = re.sub(r"\n[ \t]*(?=\S)", lambda match: " " * len(match[0]), text)
    for match in PHRASE.finditer(flat):
        yield (
            text.count("\n", 0, match.start()) + 1,
            f"{match[0].strip()!r}: write {list(PHRASES.values())[match.lastindex - 1]!r}",
        )


def exported(tree: ast.Module) -> set[str]:
    """Return the names in ``__all__``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
        ):
            return {
                each.value
                for each in ast.walk(node.value)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
    return set()


def public_identifiers(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of what a module defines of these names: parameters, methods and attributes with them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in names:
            yield node.lineno, node.name
            yield from ((line, f"{node.name}.{member}") for line, member in members(node))


def members(node: ast.stmt) -> Iterator[tuple[int, str]]:
    """Yield a function's parameters; a class's public methods with theirs, and its annotated attributes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if not each.arg.startswith("_"):
                yield each.lineno, each.arg
    elif isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and (not each.name.startswith("_") or each.name == "__init__"):
                yield each.lineno, each.name
                yield from members(each)
            elif (
                isinstance(each, ast.AnnAssign)
                and isinstance(each.target, ast.Name)
                and not each.target.id.startswith("_")
            ):
                yield each.lineno, each.target.id


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of string literals, docstrings among them; neighbouring literals are one."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".cpp", ".hpp", ".h"):
        for number, line in enumerate(text.splitlines(), 1):
            yield from (
                (number, found)
                for found in re.findall(r'"((?:[^"\\]|\\.)*)"', line)
                if not line.lstrip().startswith("#")
            )
        return
    start, joined = 0, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)):
            start = start if joined else token.start[0]
            joined += re.sub(r"^[a-zA-Z]*(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$", "", token.string)
        elif token.type not in (tokenize.NL, tokenize.COMMENT) and joined:
            yield start, joined
            joined = ""


def public_findings() -> Iterator[str]:
    """Yield what stands where users see it."""
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        for number, what in phrases(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(ROOT)}:{number}: {what}"
    modules = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "rocpy").rglob("*.py*"))
        if path.suffix in (".py", ".pyi")
    }
    # What a package or a module beside it exports is public, wherever it is defined.
    public = [
        path
        for path in modules
        if path.stem == "__init__" or (path.parent == ROOT / "rocpy" and not path.stem.startswith("_"))
    ]
    public += [
        ROOT / f"{node.module.replace('.', '/')}.py"
        for path in public
        for node in modules[path].body
        if isinstance(node, ast.ImportFrom) and node.module and node.names[0].name == "*"
    ]
    names = set().union(*(exported(modules[path]) for path in public))
    for name in sorted(filter(banned, names)):
        yield f"rocpy/__init__.py:1: public name {name!r}"
    for path, tree in modules.items():
        for number, name in public_identifiers(tree, names):
            if banned(name):
                yield f"{path.relative_to(ROOT)}:{number}: public name {name!r}"
    sources = [*(ROOT / "rocpy").rglob("*.py*"), *(ROOT / "csrc").rglob("*.[ch]*")]
    for path in sorted(path for path in sources if path.suffix in (".py", ".pyx", ".cpp", ".hpp", ".h")):
        if "third_party" in path.parts:
            continue
        for start, text in messages(path):
            for number, what in phrases(text):
                yield f"{path.relative_to(ROOT)}:{start + number - 1}: {what}"


def private_identifiers(path: Path, text: str) -> list[str]:
    """Return the identifiers of a source file that have one of the words; none of a file that is not code."""
    code = CODE.get(path.suffix)
    names = set() if code is None else set(re.findall(r"\b[A-Za-z_]\w*", code.sub(" ", text)))
    return sorted(name for name in names if banned(name) and not FOREIGN.search(name))


def private_findings() -> Iterator[str]:
    """Yield the private identifiers with one of the words."""
    for folder in PRIVATE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in CODE and "third_party" not in path.parts:
                for name in private_identifiers(path, path.read_text(encoding="utf-8")):
                    yield f"{path.relative_to(ROOT)}: private name {name!r}"


def main() -> int:
    """Print the findings; return 1 if there is one."""
    problems = [*public_findings(), *private_findings()]
    print("\n".join([*problems, f"banned words: {len(problems)} in identifiers, docs and messages"]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
