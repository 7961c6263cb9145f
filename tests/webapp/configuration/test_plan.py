from tidegauge.webapp.configuration.plan import Change, plan

A, B = {"rate": 1}, {"rate": 2}


def test_only_what_differs_changes():
    assert plan("api_keys", {"a": A, "b": A, "c": A}, {"a": A, "b": B, "d": A}) == [
        Change("change", "api_keys", "b", A, B),
        Change("create", "api_keys", "d", {}, A),
    ]


def test_prune_removes_the_rest_but_restores_what_is_kept():
    assert plan("schedule", {"a": B, "b": A, "c": A}, {"c": A}, prune=True, kept={"a": A}) == [
        Change("change", "schedule", "a", B, A),
        Change("remove", "schedule", "b", A, {}),
    ]


def test_one_and_true_differ():
    assert plan("api_keys", {"a": {"key_prefix": [1]}}, {"a": {"key_prefix": [True]}})[0].act == "change"
    assert plan("api_keys", {"a": {"key_prefix": [1]}}, {"a": {"key_prefix": [1.0]}})[0].act == "change"
