import pytest

from tests.webapp.configuration.conftest import BUSIEST, EVERY_KIND, HOOK, apply, differing
from tidegauge.webapp.configuration import services


class TestApplying:
    def test_each_kind_is_created_whatever_the_order_in_the_file(self, filled):
        applied = apply(EVERY_KIND)

        exported = services.export()
        assert len(applied.changes) == len(EVERY_KIND)
        for kind, objects in EVERY_KIND.items():
            for name, fields in objects.items():
                assert exported[kind][name] == fields

    def test_a_second_apply_changes_nothing(self, filled):
        apply(EVERY_KIND)

        assert apply(EVERY_KIND).changes == []
