"""What a larger load needs: the arithmetic, and the page that has its results."""

from benchmarks.capacity import PAGE, Need, UnitCosts, page
from benchmarks.report import DOCS

COSTS = UnitCosts(memory=400, write_servers=12, write_client=6, lookup_servers=30, lookup_client=60)


def test_a_load_needs_nodes_for_its_memory_and_for_the_processor_time_of_its_writes_and_reads():
    need = Need.of(COSTS, 1_000)

    # 1,000 million keys of 400 bytes on nodes of 16 GB; 120 and 300 seconds of processor time a second, at 60 %.
    assert need.nodes == {"memory": 25, "processor": 700}
    assert (need.first, need.task_cores, need.reader_cores) == ("processor", 100, 1_000)


def test_the_page_on_scaling_has_the_tables_of_the_present_results():
    assert page() == (DOCS / PAGE).read_text()
