"""The manifests in docker/ are valid for Kubernetes and systemd, and each starts its processes by existing commands."""

import re
import shlex
import shutil
import subprocess
import tomllib

import kubernetes_validate
import pytest
import yaml
from django.core.management import load_command_class

from tidegauge.cli import named
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.words import own_apps

FOLDER = REPOSITORY / "docker" / "kubernetes"
SYSTEMD_ANALYZE = shutil.which("systemd-analyze") or ""
KUBERNETES = kubernetes_validate.latest_version()


def documents(file):
    return [each for each in yaml.safe_load_all((FOLDER / file).read_text()) if each]


def containers(document):
    return document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])


RESOURCES = documents("tidegauge.yaml")


@pytest.mark.parametrize("document", RESOURCES, ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_kubernetes_would_take_it(document):
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found():
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dat": {}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@pytest.mark.parametrize("service", ["events", "worker"])
def test_a_process_is_started_as_compose_starts_it(service):
    compose = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text())["services"]
    here = {each["name"]: each for document in RESOURCES for each in containers(document)}

    assert here[service]["command"] == compose[service]["command"]


def start_lines():
    """Yield the words of every start line of a process, without `tidegauge`, by file."""
    for file in ("Procfile", "docker/Dockerfile", "docker/compose.yaml", "docker/kubernetes/tidegauge.yaml"):
        text = re.sub(r'[",\[\]]', " ", re.sub(r"\$\{\w+:-(\w+)\}", r"\1", (REPOSITORY / file).read_text()))
        for line in re.findall(r"(?:^\w+:|\bCMD|\bcommand:) +tidegauge (.+)$", text, re.MULTILINE):
            yield file, line.split()
    for file in (REPOSITORY / "docker" / "systemd").iterdir():
        line = re.search(r"^ExecStart=/\S+/tidegauge (.+)$", file.read_text(), re.MULTILINE)[1]
        yield from ((file.name, line.replace("%i", name).split()) for name in ("web", "events", "worker"))


@pytest.mark.parametrize(("file", "words"), [*start_lines()], ids=str)
def test_every_start_line_is_a_command_with_options_that_it_has(file, words):
    name = named(words[0])
    command = load_command_class(own_apps().get(name, "django.core"), name)

    assert command.create_parser("tidegauge", name).parse_args(words[1:])


def test_the_files_of_the_image_compose_kubernetes_and_systemd_start_every_process():
    started = {(file.partition(".")[2] or file, words[0]) for file, words in start_lines()}

    for kind in ("Procfile", "yaml", "service"):
        assert {name for file, name in started if kind in file} >= {"web", "events", "worker", "run"} - (
            {"web"} if kind == "yaml" else set()  # the image's own command
        )
    assert ("docker/Dockerfile", "web") in started


@pytest.mark.skipif(not SYSTEMD_ANALYZE, reason="no systemd on this machine")
def test_systemd_would_take_its_units(tmp_path):
    program = tmp_path / "tidegauge"
    program.symlink_to("/bin/true")
    for file in (REPOSITORY / "docker" / "systemd").iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace("/opt/shop/.venv/bin/tidegauge", str(program)))

    units = [str(unit) for unit in tmp_path.glob("*.service")]
    checked = subprocess.run([SYSTEMD_ANALYZE, "verify", *units], capture_output=True, text=True)

    assert (checked.returncode, checked.stderr) == (0, "")


def test_every_pod_is_restricted_and_every_port_is_probed():
    pods = [each["spec"]["template"]["spec"] for each in RESOURCES if containers(each)]

    for pod in pods:
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"], container["name"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/tmp", "/data"}  # noqa: S108
        probes = {name for name in container if name.endswith("Probe")}
        assert probes >= ({"readinessProbe", "livenessProbe"} if "ports" in container else set())


def test_the_image_has_every_file_that_its_installation_needs():
    kept = re.findall(r"^!(.+)$", (REPOSITORY / ".dockerignore").read_text(), re.MULTILINE)
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]

    needed = {*build["wheel"]["packages"], *build["sdist"]["only-include"], "README.md", "LICENSE", "requirements.txt"}
    assert needed - {"CHANGELOG.md", "docs"} <= {*kept}
    assert "docs/*.md" in kept


def test_every_service_finds_its_pods():
    pods = [each["spec"]["template"].get("metadata", {}).get("labels", {}) for each in RESOURCES if containers(each)]
    selectors = [each["spec"]["selector"] for each in RESOURCES if each["kind"] == "Service"]

    assert all(any(selector.items() <= labels.items() for labels in pods) for selector in selectors)


def test_the_operator_runs_the_same_command_as_the_stateful_set():
    [application] = documents("spark-application.yaml")
    [driver] = containers(next(each for each in RESOURCES if each["kind"] == "StatefulSet"))

    assert application["spec"]["arguments"][1:] == driver["command"][2:]
    assert shlex.join(driver["command"][:2]) == "tidegauge run"


ROLES = {
    "migrate": "owner", "web": "web", "events": "web", "worker": "worker", "pipeline": "pipeline", "driver": "pipeline",
}  # fmt: skip


def test_every_process_connects_as_the_role_that_it_is_for():
    compose = yaml.safe_load((REPOSITORY / "docker" / "compose.yaml").read_text())["services"]
    in_compose = {
        name: re.match(r"postgresql://tidegauge_(\w+):", service["environment"]["DATABASE_URL"])[1]
        for name, service in compose.items()
        if name in ROLES
    }
    in_kubernetes = {
        each["name"]: source["secretRef"]["name"].removeprefix("tidegauge-")
        for document in RESOURCES
        for each in containers(document)
        for source in each["envFrom"]
        if source.get("secretRef", {}).get("name", "").startswith("tidegauge-")
    }

    assert in_compose == {name: ROLES[name] for name in in_compose}
    assert in_kubernetes == {name: ROLES[name] for name in in_kubernetes}
    assert in_compose.keys() | in_kubernetes.keys() == ROLES.keys()
