"""An updater that fills baskets, for the tests of updaters over either backend."""


class FillBaskets:
    """Keeps a user's items in order of time; `done` empties the basket and emits how many it had."""

    def update_state(self, state, tuples, collector):
        for row in tuples:
            key = (row["user"],)
            [basket] = state.multi_get([key])
            if row["item"] == "done":
                collector.emit(row["user"], len(basket or []))
                state.multi_remove([key])
            else:
                state.multi_put([key], [[*(basket or []), row["item"]]])
