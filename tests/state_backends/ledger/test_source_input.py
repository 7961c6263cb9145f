from tidegauge.state_backends.ledger.source_input import (
    RECORDED_ITEMS,
    SourceInput,
    difference,
    fingerprints,
    merged,
    replaced,
)


def files(*names, modified=1):
    return SourceInput("files", dict.fromkeys(names, modified), listed=True)


def test_the_same_items_differ_in_nothing_whatever_their_order():
    assert difference(fingerprints([files("a", "b")]), [files("b", "a")]) == ""


def test_missing_changed_and_additional_items_are_named():
    stored = fingerprints([files("a", "b", "c", "d", "e")])

    found = difference(stored, [SourceInput("files", {"e": 2, "f": 1})])

    assert found == "5 files then, 2 now, missing: 'a', 'b', 'c' and 1 more, changed: 'e', additional: 'f'"


def test_a_difference_behind_the_recorded_items_is_found():
    names = [f"{number:04}" for number in range(RECORDED_ITEMS + 1)]
    (stored,) = fingerprints([files(*names)])

    assert len(stored["items"]) == RECORDED_ITEMS
    assert difference([stored], [files(*names)]) == ""
    assert difference([stored], [files(*names[:-1])]) == "101 files then, 100 now"
    assert difference([stored], [files(*names[:-1], "x")]) == "101 files then, 101 now"


def test_input_that_is_unknown_is_neither_the_same_nor_another():
    assert difference(None, [files("a")]) is None
    assert difference(fingerprints([files("a"), None]), [files("a"), files("b")]) is None
    assert difference(fingerprints([files("a")]), [None]) is None


def test_a_known_difference_counts_even_if_another_source_is_unknown():
    assert difference(fingerprints([None, files("a")]), [None, files("b")])


def test_only_a_name_that_is_known_with_another_id_was_replaced():
    bound = [{"orders": "1", "old": "2"}, {"folder": "3"}]

    assert replaced(bound, [{"orders": "1", "new": "4"}, {}]) == []
    assert replaced(bound, [{"orders": "5"}, {"folder": "3"}]) == [("orders", "1", "5")]
    assert merged(bound, [{"orders": "5"}, {}, {"x": "6"}]) == [
        {"orders": "5", "old": "2"},
        {"folder": "3"},
        {"x": "6"},
    ]
