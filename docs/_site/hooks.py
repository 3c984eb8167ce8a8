"""What the site adds to docs/: the README as its first page, the changelog, and no dead links.

Links from docs/ to other folders of the project lead nowhere on the site, so they become plain
text there.
"""

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=readme))
    files.append(File.generated(config, "CHANGELOG.md", content=changes))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep the links to pages of the site; of others keep the text."""

    def link(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = target.partition("#")[0]
        if not path or "://" in target or target.startswith("mailto:"):
            return found[0]
        here = Path(page.file.src_uri).parent
        wanted = _normal(here / path)
        if path.endswith("/"):
            wanted = f"{wanted}/README.md"
        if wanted == "../CHANGELOG.md":
            return f"[{text}]({'../' * (len(here.parts))}CHANGELOG.md)"
        return found[0] if files.get_file_from_path(wanted) is not None else text

    return _LINK.sub(link, markdown)


def _normal(path: Path) -> str:
    """Return the path without ``..`` in its middle; ``..`` at its beginning leads out of docs/."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
