"""Structure of the code: number and length of modules and functions, importers, modules that name a backend.

Run `python -m benchmarks.structure [--json] [--static] [--allow PATTERN ..]`. What is counted:

- module: a .py file that is not empty, outside of tests, migrations and generated code. An `__init__.py` with only a
  docstring counts, an empty one does not.
- lines: all lines of the file. A function's lines are those from `def` to its end, with the docstring, but without
  decorators; methods and nested functions count as functions. A comment line has only a comment; docstrings are not
  comments.
- importer of a module: another module that has an import statement for it, at the top or inside a function.
  `from package import name` imports the module `package.name` if it exists, else `package`. Dotted names in
  strings, as in Django's settings, do not count, and neither do tests and `manage.py`.
- names Redis: its code without comments and docstrings contains "redis" in an identifier or a string. Modules in
  the allowed places, patterns over paths such as `pipelines/sources/redis*`, are left out of the figures.

`benchmarks/entered_files.py` measures how many files a batch, a lookup and an event enter.
"""

import argparse
import ast
import json
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("state_backends", "pipelines", "webapp")
EXCLUDED = {"tests", "migrations", "generated", "__pycache__"}
SHORT, LONG = 60, 400  # lines

# The places that may name Redis: the backend, the source, the embedded server, the rate limiter, the settings.
REDIS_PLACES = (
    "state_backends/backends/redis*",
    "pipelines/sources/redis*",
    "pipelines/embedded/redis.py",
    "webapp/accounts/rate_limits.py",
    "webapp/settings.py",
)
COMMENT_LINE = re.compile(r"\s*#")


@dataclass(frozen=True)
class Module:
    """path: relative to the root. name: dotted; for an `__init__.py` the name of the package."""

    path: str
    text: str

    @property
    def name(self) -> str:
        name = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return f"tidegauge.{name}" if name.partition(".")[0] in PACKAGES else name

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def functions(self) -> list[int]:
        """The number of lines of each function."""
        return [
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @property
    def comments(self) -> int:
        inside = {number for start, end in self._texts() for number in range(start, end + 1)}
        return sum(bool(COMMENT_LINE.match(line)) for n, line in enumerate(self.lines, 1) if n not in inside)

    def imports(self) -> Iterator[tuple[str, str]]:
        """Yield (module, name) of each import statement; the name is empty for `import module`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from ((node.module, alias.name) for alias in node.names)

    def imports_package(self, package: str) -> bool:
        return any(module.partition(".")[0] == package for module, _ in self.imports())

    def mentions(self, word: str) -> bool:
        """Return whether the code without comments and docstrings contains the word, in any case."""
        return word in ast.unparse(_WithoutDocstrings().visit(ast.parse(self.text))).lower()

    def _texts(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last line of each string that spans several lines."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and (node.end_lineno or 0) > node.lineno:
                yield node.lineno, node.end_lineno or node.lineno


class _WithoutDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


def modules_of(root: Path, packages: Sequence[str] = PACKAGES) -> list[Module]:
    """Return the modules of the packages below a folder, by path."""
    paths = sorted(path.relative_to(root) for package in packages for path in (root / package).rglob("*.py"))
    modules = (Module(str(path), (root / path).read_text("utf-8")) for path in paths if not EXCLUDED & {*path.parts})
    return [module for module in modules if module.text.strip()]


def importers(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Return the paths of the modules that import each module, by its own path."""
    paths = {module.name: module.path for module in modules}
    found: dict[str, set[str]] = {path: set() for path in paths.values()}
    for module in modules:
        for package, name in module.imports():
            imported = paths.get(f"{package}.{name}") or paths.get(package)
            if imported and imported != module.path:
                found[imported].add(module.path)
    return found


def measure(root: Path, packages: Sequence[str] = PACKAGES, allowed: Sequence[str] = REDIS_PLACES) -> dict[str, Any]:
    """Return the figures of all packages and of each one, and the paths of the modules behind some figures."""
    modules = modules_of(root, packages)
    # The importers are taken from the whole tree, because packages import each other.
    single = {path for path, by in importers(modules).items() if len(by) == 1}
    outside = [module for module in modules if not any(fnmatch(module.path, pattern) for pattern in allowed)]
    listed = {
        "one importer": [m for m in modules if m.path in single],
        f"one importer, under {SHORT} lines": [m for m in modules if m.path in single and len(m.lines) < SHORT],
        f"over {LONG} lines": [m for m in modules if len(m.lines) > LONG],
        "import redis": [m for m in outside if m.imports_package("redis")],
        "name Redis": [m for m in outside if m.mentions("redis")],
    }
    parts = {"all": modules} | {package: _within(modules, package) for package in packages}
    return {
        "figures": {
            part: _sizes(own) | {label: len({*found} & {*own}) for label, found in listed.items()}
            for part, own in parts.items()
        },
        "modules": {label: [module.path for module in found] for label, found in listed.items()},
    }


def _within(modules: Iterable[Module], package: str) -> list[Module]:
    return [module for module in modules if module.path.startswith(f"{package}/")]


def _sizes(modules: Sequence[Module]) -> dict[str, float]:
    files = [len(module.lines) for module in modules]
    functions = [length for module in modules for length in module.functions]
    comments = sum(module.comments for module in modules)
    return {
        "modules": len(modules),
        "lines": sum(files),
        "lines per module, median": statistics.median(files or [0]),
        "lines per module, p90": _p90(files),
        "functions": len(functions),
        "lines per function, median": statistics.median(functions or [0]),
        "lines per function, p90": _p90(functions),
        "comment lines per 100": round(100 * comments / max(sum(files), 1), 1),
    }


def _p90(lengths: Sequence[int]) -> float:
    """Return the smallest length that nine in ten of the lengths do not exceed."""
    return sorted(lengths)[-(len(lengths) // 10) - 1] if lengths else 0


def _table(rows: dict[str, dict[str, Any]], heading: str) -> str:
    """Return a Markdown table with one column per entry of `rows`; all entries have the same names."""
    names = list(next(iter(rows.values())))
    lines = [[heading, *rows], ["---", *("---:" for _ in rows)]]
    lines += [[name, *(f"{each[name]:g}" for each in rows.values())] for name in names]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structure", description="Measure the code's structure.")
    parser.add_argument("--json", action="store_true", help="one JSON object, with the modules and files by name")
    parser.add_argument("--static", action="store_true", help="read the code only, run nothing")
    parser.add_argument("--allow", action="append", metavar="PATTERN", help="a path where Redis may be named")
    arguments = parser.parse_args()
    measured = measure(ROOT, allowed=arguments.allow or REDIS_PLACES)
    if not arguments.static:
        from benchmarks import entered_files  # starts Spark, PostgreSQL and Redis

        measured["entered"] = entered_files.run()
    if arguments.json:
        print(json.dumps(measured, indent=1))
        return
    print(_table(measured["figures"], "structure"))
    if "entered" in measured:
        print("", _table(_by_count(measured["entered"]), "at run time"), sep="\n")


def _by_count(traces: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    counts = [name for name, value in next(iter(traces.values())).items() if isinstance(value, int)]
    return {name: {run: trace[name] for run, trace in traces.items()} for name in counts}


if __name__ == "__main__":
    main()
