"""Pipelines of a user's own project, found by name in each place, and the errors for what cannot be found."""

import importlib
import sys

import pytest

from tidegauge.pipelines.driver.discovery import VARIABLE, declared_in, find, places
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.jobs.word_count import word_count

FUNCTION = '''
from pathlib import Path
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.state_backends import Count, StateSpec


def {name}(folder: Path, files_per_batch: int = 7) -> Pipeline:
    """Lines that were ordered.

    Not part of the description.
    """
    lines = Stream.read(TextFiles(folder, files_per_batch=files_per_batch))
    return Pipeline("{name}", [lines.persistent_aggregate(StateSpec("{name}_lines", measures={{"lines": Count()}}))])
'''
OBJECT = FUNCTION + '\nPIPELINE = {name}(Path("in"))\ndel {name}\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory with a package; what it imports is forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGAUGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").touch()
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(project, module, text):
    (project / "acme" / f"{module}.py").write_text(text)
    importlib.invalidate_caches()


def orders(project):
    write(project, "orders", FUNCTION.format(name="orders"))


def source(pipeline):
    return pipeline.sources[0]


class TestPlaces:
    def test_the_variable_names_modules(self, project, monkeypatch):
        orders(project)
        write(project, "clicks", OBJECT.format(name="clicks"))
        monkeypatch.setenv(VARIABLE, " acme.orders, acme.clicks:PIPELINE,")

        found = find("orders"), find("clicks")

        assert [str(each) for each in found] == ["acme.orders:orders", "acme.clicks:PIPELINE"]
        assert [each.pipeline().name for each in found] == ["orders", "clicks"]

    def test_the_project_file_names_modules(self, project):
        orders(project)
        (project / "pyproject.toml").write_text('[tool.tidegauge]\npipelines = ["acme.orders"]\n')

        assert find("orders").pipeline().name == "orders"

    def test_an_entry_point_of_an_installed_package_names_a_module(self, project, monkeypatch):
        site = project / "site"
        (site / "shop-1.0.dist-info").mkdir(parents=True)
        (site / "shop-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
        (site / "shop-1.0.dist-info" / "entry_points.txt").write_text("[tidegauge.pipelines]\nany = shop:orders\n")
        (site / "shop.py").write_text(FUNCTION.format(name="orders"))
        monkeypatch.syspath_prepend(str(site))

        found = find("orders")

        assert (str(found), found.place) == ("shop:orders", "entry point 'any'")

    @pytest.mark.parametrize("reference", ["acme.orders:orders", "acme.orders"])
    def test_a_reference_needs_no_place(self, project, reference):
        orders(project)

        assert find(reference).pipeline().name == "orders"

    def test_examples_are_found_last(self, project, monkeypatch):
        example = find("word_count")
        write(project, "words", FUNCTION.format(name="word_count"))
        monkeypatch.setenv(VARIABLE, "acme.words")

        assert example.target is word_count
        assert str(find("word_count")) == "acme.words:word_count"

    def test_one_pipeline_in_two_places_is_one(self, project, monkeypatch):
        orders(project)
        write(project, "all", "from acme.orders import orders\n")
        monkeypatch.setenv(VARIABLE, "acme.all")
        (project / "pyproject.toml").write_text('[tool.tidegauge]\npipelines = ["acme.orders"]\n')

        assert find("orders").place == VARIABLE

    def test_annotations_may_be_texts(self, project):
        write(project, "orders", "from __future__ import annotations\n" + FUNCTION.format(name="orders"))

        assert [each.name for each in declared_in("acme.orders", "here")] == ["orders"]


class TestArguments:
    def test_a_function_gets_the_folder_of_its_name_and_its_own_limit(self, project):
        orders(project)

        pipeline = find("acme.orders").pipeline()

        assert source(pipeline).folder == project / "home" / "input" / "orders"
        assert source(pipeline).files_per_batch == 7
        assert pipeline.description == "Lines that were ordered."

    def test_what_the_command_line_gives_comes_first(self, project):
        orders(project)

        pipeline = find("acme.orders").pipeline(project / "other", 3)

        assert (source(pipeline).folder, source(pipeline).files_per_batch) == (project / "other", 3)

    def test_a_folder_that_is_not_asked_for_is_refused(self, project):
        write(project, "clicks", OBJECT.format(name="clicks"))

        with pytest.raises(PipelineError, match=r"pipeline 'clicks': acme.clicks:PIPELINE takes no parameter 'folder'"):
            find("acme.clicks:PIPELINE").pipeline(project)

    def test_another_parameter_needs_a_default(self, project):
        write(project, "orders", FUNCTION.format(name="orders").replace("folder: Path,", "folder: Path, broker,"))

        with pytest.raises(PipelineError, match=r"acme.orders:orders has a parameter 'broker' without a default"):
            find("acme.orders").pipeline()


class TestErrors:
    def test_an_unknown_name_tells_the_nearest_and_where_was_looked(self, project, monkeypatch):
        orders(project)
        monkeypatch.setenv(VARIABLE, "acme.orders")

        with pytest.raises(PipelineError) as caught:
            find("order")

        assert str(caught.value) == (
            "pipeline 'order' not found; did you mean 'orders'? looked in TIDEGAUGE_PIPELINES (acme.orders), "
            f"[tool.tidegauge] of '{project}/pyproject.toml' (names none), and Tidegauge's examples"
        )

    def test_two_pipelines_of_a_name_are_told_apart(self, project, monkeypatch):
        orders(project)
        write(project, "more", FUNCTION.format(name="orders"))
        monkeypatch.setenv(VARIABLE, "acme.orders,acme.more")

        with pytest.raises(PipelineError) as caught:
            find("orders")

        assert str(caught.value) == (
            "pipeline 'orders' is declared more than once: acme.orders:orders (TIDEGAUGE_PIPELINES) and "
            "acme.more:orders (TIDEGAUGE_PIPELINES); give one of them another name"
        )

    def test_a_module_that_fails_hides_no_pipeline_of_another(self, project, monkeypatch, caplog):
        orders(project)
        write(project, "broken", "1 / 0\n")
        monkeypatch.setenv(VARIABLE, "acme.broken,acme.orders")

        assert find("orders").pipeline().name == "orders"
        assert (
            "TIDEGAUGE_PIPELINES: module 'acme.broken' cannot be imported: ZeroDivisionError: division by zero "
            f"({project}/acme/broken.py, line 1)"
        ) in caplog.text

    def test_an_example_is_not_taken_for_what_a_broken_module_may_declare(self, project, monkeypatch):
        write(project, "broken", "1 / 0\n")
        monkeypatch.setenv(VARIABLE, "acme.broken")

        with pytest.raises(PipelineError, match="pipeline 'word_count' not found; it may be in a module that cannot"):
            find("word_count")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "import nowhere\n",
                "module 'acme.bad' cannot be imported: ModuleNotFoundError: No module named 'nowhere'",
            ),
            ("def f(:\n", "module 'acme.bad' cannot be imported: SyntaxError: "),
            (
                "def helper(): ...\n",
                "module 'acme.bad' declares no pipeline: it needs a Pipeline object, or a function",
            ),
            ("def _hidden() -> 'Pipeline': ...\n", "module 'acme.bad' declares no pipeline"),
        ],
    )
    def test_a_module_that_is_wrong_is_named_with_the_reason(self, project, text, message):
        write(project, "bad", text)

        with pytest.raises(PipelineError) as caught:
            find("acme.bad")

        assert str(caught.value).startswith(message)

    @pytest.mark.parametrize(
        ("reference", "message"),
        [
            ("acme.nope", "module 'acme.nope' not found, neither in '{project}' nor installed: no 'acme.nope'"),
            (
                "tidegauge.nope",
                "module 'tidegauge.nope' not found, neither in '{project}' nor installed: no 'tidegauge.nope'; "
                "package 'tidegauge' is Tidegauge's, so give yours another name",
            ),
            ("acme.orders:order", "module 'acme.orders' has no attribute 'order'; did you mean 'orders'?"),
            ("acme.orders:Count", "acme.orders:Count is neither a Pipeline nor a function that returns one"),
            ("acme:nope", "module 'acme' has no attribute 'nope'"),
        ],
    )
    def test_a_reference_to_nothing_is_refused(self, project, reference, message):
        orders(project)

        with pytest.raises(PipelineError) as caught:
            find(reference)

        assert str(caught.value).startswith(message.format(project=project))

    def test_a_module_of_several_needs_the_attribute(self, project):
        write(project, "both", FUNCTION.format(name="orders") + FUNCTION.format(name="clicks"))

        with pytest.raises(
            PipelineError, match=r"module 'acme.both' declares more than one pipeline; name acme.both:or"
        ):
            find("acme.both")

    def test_a_function_has_the_name_of_its_pipeline(self, project):
        write(project, "orders", FUNCTION.format(name="orders").replace("def orders", "def make"))

        with pytest.raises(PipelineError, match=r"acme.orders:make returned pipeline 'orders'; name the"):
            find("acme.orders").pipeline()

    def test_a_function_that_fails_is_named_with_the_place(self, project):
        write(project, "orders", FUNCTION.format(name="orders").replace('"""\n    lines', '"""\n    1 / 0\n    lines'))

        with pytest.raises(PipelineError, match=r"acme.orders:orders failed: ZeroDivisionError: .*/orders.py, line 14"):
            find("acme.orders").pipeline()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[tool.tidegauge]\npipelines = 'acme.orders'\n", "[tool.tidegauge] pipelines must be a list of modules"),
            ("[tool]\ntidegauge = 1\n", "[tool.tidegauge] pipelines must be a list of modules"),
            ("[tool.tidegauge\n", "cannot be read: "),
        ],
    )
    def test_a_project_file_that_is_wrong_is_named(self, project, text, message):
        (project / "pyproject.toml").write_text(text)

        with pytest.raises(PipelineError) as caught:
            places()

        assert str(caught.value).startswith(f"'{project}/pyproject.toml'")
        assert message in str(caught.value)
