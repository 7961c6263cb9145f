"""Mutants of boards and SQL: who sees a board, when a link ends, who may frame it, what SQL of people may do."""

from tests.mutants.mutant import Mutant

LINKS = "webapp/console/boards/links.py"
SELECTORS = "webapp/console/boards/selectors.py"
SERVICES = "webapp/console/boards/services.py"
SHARED = "webapp/console/dashboard/views/shared_boards.py"
VIEWS = "webapp/console/dashboard/views/boards.py"
TOGETHER = "webapp/console/dashboard/boards/together.py"
CSP = "webapp/core/csp.py"
RUN = "webapp/console/sql/run.py"
ROLE = "state_backends/schema/sql_role.py"

ACCESS = ["tests/webapp/console/boards/test_access.py"]
LINK_TESTS = ["tests/webapp/console/boards/test_links.py"]
BOARD = ["tests/webapp/console/boards/test_board.py"]
SQL = ["tests/webapp/console/sql/test_sql.py"]

MUTANTS = [
    Mutant("boards/any-id-opens-a-link", LINKS, "pk = _signer().unsign(token)", "pk = token.split('.')[0]", LINK_TESTS),
    Mutant("boards/a-link-opens-as-a-frame", LINKS, "filter(pk=pk, kind=kind)", "filter(pk=pk)", LINK_TESTS),
    Mutant("boards/a-link-never-ends", LINKS, "timezone.now() >= link.expires_at", "False", LINK_TESTS),
    Mutant("boards/a-link-cannot-be-revoked", LINKS, "link.revoked_at is not None", "False", LINK_TESTS),
    Mutant(
        "boards/a-link-outlives-the-permission",
        LINKS,
        "not link.board.owner.has_perm(SHARE_BOARDS)",
        "False",
        LINK_TESTS,
    ),
    Mutant(
        "boards/a-link-reads-everything",
        SELECTORS,
        "Visible(person_scope(owner)",
        "Visible(type(person_scope(owner))()",
        LINK_TESTS,
    ),
    Mutant(
        "boards/a-provider-without-a-group-reads",
        SELECTORS,
        "OidcIdentity.objects.filter(user=owner).exists()",
        "False",
        LINK_TESTS,
    ),
    Mutant("boards/an-address-asks-without-limit", SHARED, "not verdict.is_allowed", "False", LINK_TESTS),
    Mutant(
        "boards/a-link-takes-the-searches-of-nobody",
        SHARED,
        'SEARCHES.held(f"link {link.pk}")',
        "__import__('contextlib').nullcontext()",
        LINK_TESTS,
    ),
    Mutant("boards/anybody-shares", VIEWS, "if not request.user.has_perm(SHARE_BOARDS):", "if False:", LINK_TESTS),
    Mutant(
        "boards/anybody-changes", VIEWS, "filter(pk=board_id, owner_id=request.user.pk)", "filter(pk=board_id)", ACCESS
    ),
    Mutant("boards/a-prefix-sees-shared-boards", SELECTORS, "own if visible.scope.key_prefix else own", "own", ACCESS),
    Mutant(
        "boards/a-state-outside-is-shown", SELECTORS, "found = found.filter(own | ~Q(pk__in=outside))", "pass", ACCESS
    ),
    Mutant("boards/a-private-view-is-shown", TOGETHER, "if tile.view_id not in seen:", "if False:", ACCESS),
    Mutant("boards/a-board-has-any-number-of-tiles", SERVICES, "if len(tiles) > MOST_TILES:", "if False:", ACCESS),
    Mutant(
        "boards/tiles-of-several-batches",
        TOGETHER,
        "pk, _read(tile, seen, visible, feeding, txid, ends)",
        "pk, _read(tile, seen, visible, feeding, None, ends)",
        BOARD,
    ),
    Mutant(
        "boards/a-slow-board-goes-on",
        TOGETHER,
        "    if time.monotonic() >= ends:\n        return",
        "    if False:\n        return",
        BOARD,
    ),
    Mutant("boards/a-board-is-no-search", VIEWS, "with SEARCHES.held(client_of(request)):", "if True:", BOARD),
    Mutant(
        "boards/every-page-may-be-framed", CSP, "match.view_name == FRAME_VIEW", "bool(match.view_name)", LINK_TESTS
    ),
    Mutant("boards/a-frame-has-forms", CSP, "FRAME | {", "PAGES | {", LINK_TESTS),
    Mutant(
        "sql/a-role-may-do-more",
        RUN,
        "if too_much := sql_role.excess(conn, list(django_tables().names)):",
        "if too_much := '':",
        SQL,
    ),
    Mutant("sql/members-of-mighty-roles-pass", ROLE, "pg_has_role(current_user, oid, 'MEMBER')", "false", SQL),
    Mutant("sql/a-transaction-that-writes", RUN, "REPEATABLE READ READ ONLY", "REPEATABLE READ READ WRITE", SQL),
    Mutant("sql/what-it-does-is-committed", RUN, "with closing(conn):", "with conn:", SQL),
    Mutant(
        "sql/values-of-any-size",
        RUN,
        "MOST_OF_A_VALUE, MOST_TOGETHER = 1_000,",
        "MOST_OF_A_VALUE, MOST_TOGETHER = 10_000_000,",
        SQL,
    ),
    Mutant("sql/any-number-of-rows", RUN, "len(rows) == MOST_ROWS or", "", SQL),
    Mutant("sql/no-time-limit", RUN, '"statement_timeout": f"{MOST_SECONDS}s",', "", SQL),
    Mutant(
        "sql/no-audit", RUN, 'record("sql.run", "live views"', '(lambda *a, **k: None)("sql.run", "live views"', SQL
    ),
    Mutant("sql/restricted-people-run-it", RUN, "and key_scope(request).is_unrestricted", "", SQL),
    Mutant("sql/without-the-permission", RUN, "request.user.has_perm(RUN_SQL) and ", "", SQL),
    Mutant(
        "sql/a-formula-in-a-heading",
        "webapp/console/dashboard/views/sql.py",
        "unique = without_formula(name)",
        "unique = name",
        SQL,
    ),
]
