# SPDX-License-Identifier: MIT
"""Count words that say too little in identifiers, and turns of phrase that must be read twice in docs and messages.

`banned_words.py` lists those in public identifiers, docs and messages, and fails if there are any. Other identifiers
with such a word, locals included, are counted for each part of the tree, and a part may not have more than
`private_identifiers.txt` allows. `--private` prints these counts, and `--write` lowers the limits to them.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
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
# Where private identifiers are counted, and what is not code in these files.
PRIVATE = ("rocpy", "csrc", "tests/support")
LIMITS = Path(__file__).with_name("private_identifiers.txt")
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


def private_counts() -> Counter[str]:
    """Return how many identifiers with one of the words each part of the tree has: each name once for each file."""
    counts: Counter[str] = Counter()
    for folder in PRIVATE:
        for path in sorted((ROOT / folder).rglob("*")):
            code = CODE.get(path.suffix)
            if code is None or "third_party" in path.parts:
                continue
            names = set(re.findall(r"\b[A-Za-z_]\w*", code.sub(" ", path.read_text(encoding="utf-8"))))
            counts[part_of(path)] += sum(banned(name) and not FOREIGN.search(name) for name in names)
    return counts


def part_of(path: Path) -> str:
    """Return the part of the tree that a file is counted under: a package, or a library of the native code."""
    parts = path.relative_to(ROOT).parent.parts
    return "/".join(parts[: 4 if parts[:3] == ("csrc", "platforms", "host") else 2])


def private_limits() -> dict[str, int]:
    """Return the most that each part may have."""
    rows = (line.split() for line in LIMITS.read_text(encoding="utf-8").splitlines())
    return {row[1]: int(row[0]) for row in rows if row and row[0] != "#"}


def private_problems(counts: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """Return a line for each part that has more than it may have."""
    return [
        f"{part}: {count} private identifiers with a banned word, at most {limits.get(part, 0)} allowed; rename some"
        for part, count in sorted(counts.items())
        if count > limits.get(part, 0)
    ]


def main(arguments: list[str]) -> int:
    """Print the findings; return 1 if there is one."""
    if arguments not in ([], ["--private"], ["--private", "--write"]):
        print("usage: banned_words.py [--private [--write]]", file=sys.stderr)
        return 2
    counts = private_counts()
    limits = private_limits()
    problems = private_problems(counts, limits)
    if arguments:
        for part, count in sorted(counts.items()):
            print(f"{count:5} {part}")
        if arguments[1:]:
            head = [line for line in LIMITS.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
            lower = {part: min(count, limits.get(part, 0)) for part, count in counts.items()}
            LIMITS.write_text("\n".join([*head, *(f"{n} {part}" for part, n in sorted(lower.items()) if n), ""]))
    else:
        problems += public_findings()
        print(f"private identifiers with a banned word: {counts.total()}, {sum(limits.values())} allowed")
    print("\n".join([*problems, f"banned words: {len(problems)} in public identifiers, docs and messages"]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
