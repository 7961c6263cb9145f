"""Discovery: finds a user's pipelines by name, in the modules named by environment, project file and packages.

A module declares pipelines as `Pipeline` objects, or as functions that return one. Modules are named by the variable
TIDEGAUGE_PIPELINES, by `[tool.tidegauge] pipelines` in the pyproject.toml of the working directory, and by entry points
of installed packages. A reference such as `acme.orders:orders` needs none of these. Tidegauge's examples are searched
last, so a user's pipeline may have the name of one.
"""

import difflib
import importlib
import inspect
import logging
import os
import pkgutil
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from tidegauge.pipelines import jobs
from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from tidegauge.pipelines.declare.pipeline import Pipeline

VARIABLE = "TIDEGAUGE_PIPELINES"
GROUP = "tidegauge.pipelines"  # of entry points

# The parameters that a function returning a pipeline may have; any other needs a default.
PARAMETERS = ("folder", "files_per_batch")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """A place that names modules of pipelines: `acme.orders`, or `acme.orders:orders` for one pipeline of a module."""

    title: str
    modules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.title} ({', '.join(self.modules) or 'names none'})"


@dataclass(frozen=True)
class Declaration:
    """A pipeline that a module declares. name: of the pipeline. module, attribute: where it is declared."""

    name: str
    module: str
    attribute: str
    target: "Pipeline | Callable[..., Pipeline]"
    place: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"

    def pipeline(self, folder: Path | None = None, files_per_batch: int | None = None) -> "Pipeline":
        """Return the pipeline. folder: of its input, DATA/input/NAME by default.

        Its description is by default the first line of the function's docstring. Raises PipelineError if a function
        fails, returns a pipeline of another name, or has parameters other than `folder` and `files_per_batch` without a
        default, and if it does not have those given here.
        """
        arguments = self.arguments(folder, files_per_batch)
        target: Any = self.target
        if _is_pipeline(target):
            return target
        made = self._called(target, arguments)
        summary = (inspect.getdoc(self.target) or "").partition("\n")[0]
        return replace(made, description=made.description or summary)

    def arguments(self, folder: Path | None, files_per_batch: int | None) -> dict[str, Any]:
        """Return the arguments to call the function with. Raises PipelineError for one that it does not take."""
        given = {"folder": folder, "files_per_batch": files_per_batch}
        arguments = {name: value for name, value in given.items() if value is not None}
        if unknown := [name for name in arguments if name not in self._parameters]:
            raise PipelineError(f"pipeline {self.name!r}: {self} takes no parameter {unknown[0]!r}")
        return arguments

    def _called(self, function: "Callable[..., Pipeline]", arguments: dict[str, Any]) -> "Pipeline":
        required = {name for name, each in self._parameters.items() if _is_required(each)} - arguments.keys()
        if missing := sorted(required - set(PARAMETERS)):
            raise PipelineError(
                f"pipeline {self.name!r}: {self} has a parameter {missing[0]!r} without a default; it may take "
                f"{' and '.join(PARAMETERS)}, and needs defaults for others"
            )
        if "folder" in required:
            arguments["folder"] = data_dir() / "input" / self.name
        try:
            made = function(**arguments)
        except Exception as error:
            raise PipelineError(f"pipeline {self.name!r}: {self} failed: {_reason(error)}") from error
        if not _is_pipeline(made) or made.name != self.name:
            what = f"pipeline {made.name!r}" if _is_pipeline(made) else repr(made)
            raise PipelineError(f"{self} returned {what}; name the function after the pipeline that it returns")
        return made

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        target: Any = self.target
        return {} if _is_pipeline(target) else inspect.signature(target).parameters


def find(name: str) -> Declaration:
    """Return the pipeline of that name, or the one that a reference names: `acme.orders:orders` or `acme.orders`.

    If a module cannot be imported, a pipeline of another module is still found, with a warning. An example is not,
    because the module may declare a pipeline of that name.
    Raises PipelineError if there is none, with the nearest names and the places searched, if there are several, and if
    a place is malformed.
    """
    if _is_reference(name):
        return _referenced(name)
    search = Search(places())
    found = _chosen(name, search)
    for failure in search.failures:
        logger.warning("the pipelines of a module cannot be read: %s", failure)
    return found


def find_early(name: str) -> Declaration | None:
    """Find the same before servers run and Django is set up; None if a module fails, because it may need these."""
    try:
        if _is_reference(name):
            return _referenced(name)
        search = Search(places())
        return None if search.failures else _chosen(name, search)
    except PipelineError as error:
        # Raised, because what is not installed now is not installed later. Others may fail before Django is set up.
        if error.__cause__ is None or isinstance(error.__cause__, ModuleNotFoundError):
            raise
        return None


def _is_reference(name: str) -> bool:
    return ":" in name or "." in name


def _chosen(name: str, search: "Search") -> Declaration:
    found = search.named(name)
    if not found and not search.failures and (example := f"{jobs.__name__}.{name}") in examples().modules:
        found = Search([Place(examples().title, (example,))]).named(name)
    if not found:
        raise PipelineError(search.not_found(name))
    if len(found) > 1:
        where = " and ".join(f"{each} ({each.place})" for each in found)
        raise PipelineError(f"pipeline {name!r} is declared more than once: {where}; give one of them another name")
    return found[0]


def places(environ: Mapping[str, str] = os.environ, folder: Path | None = None) -> list[Place]:
    """Return the places that name a user's pipelines. folder: of the project, the working directory by default.

    Raises PipelineError for a pyproject.toml that cannot be read.
    """
    installed = [
        Place(f"entry point {each.name!r}", (each.value,))
        for each in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value))
    ]
    variable = Place(VARIABLE, tuple(part.strip() for part in environ.get(VARIABLE, "").split(",") if part.strip()))
    return [variable, _project_file((folder or Path.cwd()) / "pyproject.toml"), *installed]


def examples() -> Place:
    """Return the pipelines that come with Tidegauge: each has a module of its name in pipelines/jobs/."""
    names = [f"{jobs.__name__}.{module.name}" for module in pkgutil.iter_modules(jobs.__path__)]
    return Place("Tidegauge's examples", tuple(names))


def _project_file(path: Path) -> Place:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise PipelineError(f"{str(path)!r} cannot be read: {error}") from error
    tool = document.get("tool", {})
    named = tool.get("tidegauge", {}).get("pipelines", []) if isinstance(tool.get("tidegauge", {}), dict) else None
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise PipelineError(f'{str(path)!r}: [tool.tidegauge] pipelines must be a list of modules: ["acme.orders"]')
    return Place(f"[tool.tidegauge] of {str(path)!r}", tuple(named))


class Search:
    """What the modules of some places declare. failures: modules that could not be read, with the reason."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = list(places)
        self.failures: list[str] = []
        self.declarations = list(self._read())

    def _read(self) -> Iterator[Declaration]:
        for place in self.places:
            for reference in place.modules:
                try:
                    yield from declared_in(reference, place.title)
                except PipelineError as error:
                    self.failures.append(f"{place.title}: {error}")

    def named(self, name: str) -> list[Declaration]:
        """Return the declarations of a pipeline; the same object found in two places counts once."""
        found: dict[int, Declaration] = {}
        for each in self.declarations:
            if each.name == name:
                found.setdefault(id(each.target), each)
        return list(found.values())

    def not_found(self, name: str) -> str:
        """Return the message for a name that is not found."""
        if self.failures:
            return f"pipeline {name!r} not found; it may be in a module that cannot be read: {'; '.join(self.failures)}"
        ours = examples()
        known = sorted({each.name for each in self.declarations} | {each.rpartition(".")[2] for each in ours.modules})
        near = difflib.get_close_matches(name, known, n=3)
        nearest = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(known)};"
        looked = ", ".join(map(str, self.places))
        return f"pipeline {name!r} not found; {nearest} looked in {looked}, and Tidegauge's examples"


def declared_in(reference: str, place: str) -> list[Declaration]:
    """Return what a module declares, or the one attribute that `module:attribute` names.

    Raises PipelineError if the module cannot be imported, has no such attribute, or declares no pipeline.
    """
    module_name, _, attribute = reference.partition(":")
    module = imported(module_name.strip())
    if attribute:
        if not hasattr(module, attribute.strip()):
            near = difflib.get_close_matches(attribute, vars(module), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise PipelineError(f"module {module.__name__!r} has no attribute {attribute!r}{hint}")
        return [_declaration(module, attribute.strip(), place)]
    found = [_declaration(module, name, place) for name, value in vars(module).items() if _declares(name, value)]
    if not found:
        raise PipelineError(
            f"module {module.__name__!r} declares no pipeline: it needs a Pipeline object, or a function annotated "
            "with `-> Pipeline`, whose name does not begin with an underscore"
        )
    return found


def _referenced(reference: str) -> Declaration:
    found = declared_in(reference, "the command line")
    if len(found) > 1:
        choices = " or ".join(str(each) for each in found)
        raise PipelineError(f"module {reference!r} declares more than one pipeline; name {choices}")
    return found[0]


def _declaration(module: ModuleType, attribute: str, place: str) -> Declaration:
    target = getattr(module, attribute)
    if not _is_pipeline(target) and (isinstance(target, type) or not callable(target)):
        raise PipelineError(
            f"{module.__name__}:{attribute} is neither a Pipeline nor a function that returns one, but {target!r:.100}"
        )
    name = target.name if _is_pipeline(target) else attribute
    return Declaration(name, module.__name__, attribute, target, place)


def _declares(name: str, value: Any) -> bool:
    if name.startswith("_") or isinstance(value, type):
        return False
    return _is_pipeline(value) or (callable(value) and _returns_pipeline(value))


def _is_pipeline(value: Any) -> "TypeGuard[Pipeline]":
    # Imported here, so that a name that nothing declares is refused before Spark is loaded.
    from tidegauge.pipelines.declare.pipeline import Pipeline

    return isinstance(value, Pipeline)


def _returns_pipeline(function: Callable[..., Any]) -> bool:
    try:
        annotation = inspect.signature(function).return_annotation
    except (TypeError, ValueError):  # of built-in functions
        return False
    from tidegauge.pipelines.declare.pipeline import Pipeline

    # With `from __future__ import annotations` it is a string.
    return annotation is Pipeline or (isinstance(annotation, str) and annotation.rpartition(".")[2] == "Pipeline")


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in variadic


def imported(name: str) -> ModuleType:
    """Import a module of the project or of an installed package. Raises PipelineError if that fails."""
    # As `python -m` does, because neither tidegauge nor a console script has the working directory on its path.
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise PipelineError(f"module {name!r} cannot be imported: {_reason(error)}") from error
        hint = ""
        if name.startswith("tidegauge."):
            hint = "; package 'tidegauge' is Tidegauge's, so give yours another name"
        raise PipelineError(
            f"module {name!r} not found, neither in {folder!r} nor installed: no {error.name!r}{hint}"
        ) from error
    except Exception as error:
        raise PipelineError(f"module {name!r} cannot be imported: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what went wrong and where, in one line."""
    trace = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({trace[-1].filename}, line {trace[-1].lineno})"
