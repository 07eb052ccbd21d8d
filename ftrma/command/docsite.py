"""Hooks by which mkdocs makes a site of the pages (``ftrma/docs/site/mkdocs.yml``).

The pages are also written for a terminal. So the site adds what a terminal lacks: links where a
page is named by its path, drawings as SVG, and pages about the names that programs use.

mkdocs loads this file by its path, outside of the package.
"""

from __future__ import annotations

import html
import re
from typing import Any

from ftrma.command import drawings, reference
from ftrma.command.helping import DOCS, title

PAGE = re.compile(r"`ftrma/docs/([\w-]+)\.md`")
BARRED = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")  # code with bars that do not end a cell of a table
NAME = re.compile(r"`ftrma help (ftrma[\w.]*)`")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages about names."""
    from mkdocs.structure.files import File

    for module in reference.MODULES:
        files.append(File.generated(config, f"{module}.md", content=reference.page(module)))
    return files


def on_page_markdown(markdown: str, **_more: Any) -> str:
    """Return a page with links and drawings."""
    titles = {path.stem: title(path) for path in DOCS.glob("*.md")}

    def link(match: re.Match[str]) -> str:
        name = match[1]
        return f"[{titles[name]}]({name}.md)" if name in titles else match[0]

    def words(part: str) -> str:
        return BARRED.sub(barred, NAME.sub(named, PAGE.sub(link, part)))

    parts = re.split(r"(?ms)(^```.*?^```$)", markdown)
    return "".join(drawn(part) if part.startswith("```") else words(part) for part in parts)


def barred(match: re.Match[str]) -> str:
    """Return code with bars as HTML: Markdown would show the backslashes in front of them."""
    shown = html.escape(match[1]).replace(r"\|", "&#124;")
    return f"<code>{shown}</code>"


def named(match: re.Match[str]) -> str:
    """Return a link to the page about a name."""
    module = next((m for m in sorted(reference.MODULES, key=len, reverse=True)
                   if match[1] == m or match[1].startswith(f"{m}.")), None)
    return f"[`{match[1]}`]({module}.md)" if module else match[0]


def drawn(part: str) -> str:
    """Return a drawing as an HTML figure, and any other block of text unchanged."""
    match = drawings.BLOCK.fullmatch(part)
    if not match:
        return part
    return (f"<figure>{drawings.svg(match[1], match[2])}"
            f"<figcaption>{match[1]}</figcaption></figure>")
