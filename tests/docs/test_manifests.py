"""The manifests in docker/kubernetes are what Kubernetes would take, and run what the image and compose run."""

import re
import shlex

import kubernetes_validate
import pytest
import yaml

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

FOLDER = REPOSITORY / "docker" / "kubernetes"
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
