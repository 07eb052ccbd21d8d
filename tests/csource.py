"""Reading C sources without a compiler: code without comments, what is outside of braces, names."""

from __future__ import annotations

import re
from pathlib import Path

CSRC = Path(__file__).resolve().parents[1] / "csrc"
# From the top down; what lies in csrc itself defines nothing.
ORDER = ("graph", "interpose", "log", "vault", "job", "kernels", "wire")
SOURCES = {path.name: path for folder in ORDER for path in sorted((CSRC / folder).glob("*.c"))}
HEADERS = {path.name: path for path in sorted(CSRC.rglob("*.h"))}


def code_of(path: Path) -> str:
    """Without comments, and with strings empty; a directive is one line."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
    text = re.sub(r"\\\n", " ", text)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)+'", '""', text)


def names_in(code: str) -> set[str]:
    """Names of functions and variables; tags of types are none."""
    return set(re.findall(r"\b[A-Za-z_]\w*", re.sub(r"\b(?:struct|enum|union)\s+\w+", " ", code)))


def items_of(code: str) -> list[tuple[str, str]]:
    """Yields (head, body) of each item outside of all braces; a body is what braces hold."""
    code = re.sub(r"(?m)^\s*#.*$", "", code)
    items, head, body, depth = [], "", "", 0
    for part in re.split(r"([{};])", code):
        depth += (part == "{") - (part == "}")
        if depth or part == "}":
            body += part
        elif part != ";":
            if body and not re.match(r"\s*(?:[=,\[*]|\w+\s*[;=,\[]|__attribute__|$)", part):
                items.append((head, body))  # a function
                head, body = "", ""
            head += part
            continue
        if part == ";" and not depth:
            items.append((head, body))
            head, body = "", ""
    return [*items, (head, body)]
