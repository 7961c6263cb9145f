"""The pipeline of many states: every state has another key or another measure."""

from benchmarks.many_states import KEYS, MEASURES, STATES, pipeline


def test_a_pipeline_has_as_many_states_as_its_name_says(tmp_path):
    assert [len(pipeline(f"states_{count}", tmp_path).specs) for count in STATES] == list(STATES)


def test_no_two_states_have_both_key_and_measure_in_common(tmp_path):
    specs = pipeline("states_100", tmp_path).specs

    assert len({(tuple(spec.key), repr(spec.measures)) for spec in specs}) == len(KEYS) * len(MEASURES) == 100
