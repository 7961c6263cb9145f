"""Mutants of access: scopes, key scopes, tokens, keys that were revoked or expired, and rate limits."""

from tests.mutants.mutant import Mutant

PERMISSIONS = "webapp/accounts/permissions.py"
TOKENS = "webapp/accounts/tokens.py"
ISSUING = "webapp/accounts/issuing.py"
REVOKED = "webapp/accounts/revoked_tokens.py"
AUTHENTICATION = "webapp/accounts/authentication.py"
RATE_LIMITS = "webapp/accounts/rate_limits.py"
ON_LOOP = "webapp/api/on_loop.py"
ON_LOOP_TESTS = ["tests/webapp/serving/test_on_loop.py"]
LOOP_CONNECTIONS = "webapp/catalog/loop_connections.py"
THROTTLING = "webapp/accounts/throttling.py"
LOOKUPS = "webapp/api/lookups.py"
ENTRIES = "webapp/api/entries.py"
SUBSCRIPTIONS = "webapp/events/subscriptions.py"
VISIBLE = "webapp/catalog/visible.py"

SCOPES = ["tests/webapp/accounts/test_permissions.py"]
PERSONS = ["tests/webapp/accounts/test_restrictions.py"]
KEY_SCOPE = ["tests/webapp/api/test_key_scope.py"]
TOKEN_TESTS = ["tests/webapp/accounts/test_tokens.py"]
REVOKED_TESTS = ["tests/webapp/accounts/test_revoked_tokens.py"]
KEYS = ["tests/webapp/accounts/test_authentication.py"]
RATES = ["tests/webapp/accounts/test_rate_limits.py"]
THROTTLES = ["tests/webapp/accounts/test_throttling.py"]

MUTANTS = [
    Mutant(
        "access/a-shorter-prefix-widens-a-key",
        PERMISSIONS,
        "return max(own, requested, key=len)",
        "return requested or own",
        SCOPES,
    ),
    Mutant(
        "access/only-the-first-part-of-a-prefix-is-compared",
        PERMISSIONS,
        "shared = min(len(own), len(requested))",
        "shared = min(len(own), len(requested), 1)",
        SCOPES,
    ),
    Mutant(
        "access/only-the-first-part-of-a-key-is-compared",
        PERMISSIONS,
        "if tuple(key[:parts]) != prefix:",
        "if parts and key[0] != prefix[0]:",
        SCOPES,
    ),
    Mutant(
        "access/only-the-first-key-is-compared",
        PERMISSIONS,
        "for index, key in enumerate(keys):",
        "for index, key in enumerate(keys[:1]):",
        SCOPES,
    ),
    Mutant(
        "access/a-key-for-some-keys-acts-on-the-whole-state",
        PERMISSIONS,
        "        self.check_state(name)\n        if self.key_prefix:\n",
        "        self.check_state(name)\n        if self.key_prefix and not self.states:\n",
        SCOPES,
    ),
    Mutant(
        "access/a-key-for-some-keys-is-unrestricted",
        PERMISSIONS,
        "return not self.states and not self.key_prefix and not self.queries",
        "return not self.states and not self.queries",
        [*SCOPES, *KEY_SCOPE],
    ),
    Mutant(
        "access/a-key-for-saved-queries-reads-states",
        PERMISSIONS,
        '            if not getattr(view, "for_saved_queries", False):\n'
        "                KeyScope.of(key).check_reads_states()\n",
        "",
        ["tests/webapp/api/saved_queries/test_run.py"],
    ),
    Mutant(
        "access/a-key-for-saved-queries-sees-states",
        PERMISSIONS,
        "return not self.queries and (not self.states or name in self.states)",
        "return not self.states or name in self.states",
        [*SCOPES, "tests/webapp/api/saved_queries/test_run.py"],
    ),
    Mutant(
        "access/every-key-has-every-scope",
        PERMISSIONS,
        "return key.allows(scope)",
        "return key.allows(scope) or key.allows(Scope.READ)",
        ["tests/webapp/api/test_errors.py"],
    ),
    Mutant(
        "access/every-user-may-maintain",
        PERMISSIONS,
        "return request.user.is_authenticated and request.user.has_perm(permission)",
        "return request.user.is_authenticated",
        ["tests/webapp/accounts/test_groups.py", "tests/webapp/api/test_maintenance.py"],
    ),
    Mutant(
        "access/restrictions-of-a-person-add-up",
        PERMISSIONS,
        "states = self.states & other.states if self.states and other.states",
        "states = self.states | other.states if self.states and other.states",
        PERSONS,
    ),
    Mutant(
        "access/prefixes-that-exclude-each-other-leave-the-longer",
        PERMISSIONS,
        "is_empty = not fits or (",
        "is_empty = (",
        PERSONS,
    ),
    Mutant(
        "access/restrictions-of-groups-are-forgotten",
        PERMISSIONS,
        "Restriction.objects.filter(Q(user=user) | Q(group__user=user))",
        "Restriction.objects.filter(Q(user=user))",
        PERSONS,
    ),
    Mutant(
        "access/who-lacks-a-permission-gives-it-to-a-key",
        PERMISSIONS,
        "if not giver.has_perm(permission)]",
        "if not giver.is_active]",
        ["tests/webapp/console/dashboard/test_api_keys.py"],
    ),
    Mutant(
        "access/a-token-is-as-wide-as-its-key-was-then",
        TOKENS,
        "prefix = max(token.key_prefix, key.key_prefix, key=len)",
        "prefix = token.key_prefix or key.key_prefix",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-token-of-another-prefix-than-its-key",
        TOKENS,
        "for own in (token, key)):",
        "for own in (token,)):",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-token-reads-states-that-its-key-has-lost",
        TOKENS,
        "_in_both(token.states, key.states)",
        "token.states or key.states",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-token-runs-queries-that-its-key-has-lost",
        TOKENS,
        "_in_both(token.queries, key.queries)",
        "token.queries or key.queries",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-cached-token-does-not-follow-its-key",
        TOKENS,
        "if last is None or last[0] is not key:",
        "if last is None:",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-token-may-what-its-key-may",
        TOKENS,
        "restricted.scopes = [Scope.READ] if key.allows(Scope.READ) else []",
        "restricted.scopes = key.scopes",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-cached-token-does-not-expire",
        TOKENS,
        "if self.token.expires_at + CLOCK_SKEW <= now:",
        "if self.token.expires_at + CLOCK_SKEW <= self.token.expires_at:",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-cached-token-outlives-its-key",
        TOKENS,
        "if key.is_expired(now) or self.signed_by not in",
        "if self.signed_by not in",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-cached-token-outlives-the-secret-that-signed-it",
        TOKENS,
        "if key.is_expired(now) or self.signed_by not in _valid_secrets(key, now):",
        "if key.is_expired(now):",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-token-of-the-secret-before-is-valid-for-ever",
        TOKENS,
        "key.previous_until is not None and now < key.previous_until:",
        "key.previous_until is not None:",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-revoked-token-is-accepted",
        TOKENS,
        "if self.token.id in key.revoked_tokens:",
        "if self.token.id == key.revoked_tokens:",
        REVOKED_TESTS,
    ),
    Mutant(
        "access/1-and-true-are-one-key",
        TOKENS,
        "return [json.dumps(part) for part in longer[: len(shorter)]] == [json.dumps(part) for part in shorter]",
        "return list(longer[: len(shorter)]) == list(shorter)",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-token-is-made-for-states-outside-its-key",
        ISSUING,
        "        scope.of_reads.check_state(name)\n",
        "        pass\n",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-token-says-that-it-outlives-its-key",
        ISSUING,
        "min(expires_at, key.expires_at)",
        "max(expires_at, key.expires_at)",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-key-revokes-tokens-of-another",
        REVOKED,
        "if key is None or expected not in (None, key):",
        "if key is None:",
        REVOKED_TESTS,
    ),
    Mutant(
        "access/a-revoked-key-makes-tokens-valid",
        REVOKED,
        "ApiKey.objects.filter(prefix=prefix, revoked_at=None).annotate",
        "ApiKey.objects.filter(prefix=prefix).annotate",
        [*REVOKED_TESTS, *TOKEN_TESTS],
    ),
    Mutant(
        "access/a-revoked-key-is-accepted",
        AUTHENTICATION,
        'ApiKey.objects.filter(prefix=form["prefix"], revoked_at=None).first()',
        'ApiKey.objects.filter(prefix=form["prefix"]).first()',
        KEYS,
    ),
    Mutant(
        "access/a-key-is-cached-for-ever",
        AUTHENTICATION,
        "if cached is None or time.monotonic() >= cached.fresh_until:",
        "if cached is None:",
        KEYS,
    ),
    Mutant(
        "access/a-grace-outlives-the-key",
        AUTHENTICATION,
        "min(key.previous_until, key.expires_at or key.previous_until)",
        "key.previous_until",
        KEYS,
    ),
    Mutant(
        "access/one-request-more-than-the-burst",
        RATE_LIMITS,
        "if early > 0 then",
        "if early > interval then",
        RATES,
    ),
    Mutant(
        "access/a-wrong-key-is-not-counted",
        THROTTLING,
        "_take_wrong_key(request, cost=1)",
        "_take_wrong_key(request, cost=0)",
        THROTTLES,
    ),
    Mutant(
        "access/a-token-does-not-count-for-its-key",
        THROTTLING,
        '    verdict = yield from taking_batched(f"key:{key.prefix}", rate_of(key), key.burst)\n',
        '    verdict = own or (yield from taking_batched(f"key:{key.prefix}", rate_of(key), key.burst))\n',
        TOKEN_TESTS,
    ),
    Mutant(
        "access/the-loop-gives-turns-that-are-not-free",
        "webapp/core/turns.py",
        "        if not self._is_free(client):\n            return False\n",
        "",
        ON_LOOP_TESTS,
    ),
    Mutant(
        "access/a-connection-whose-answer-may-still-come-is-kept",
        LOOP_CONNECTIONS,
        "            await self.close()  # because the answer may still come\n",
        "",
        ON_LOOP_TESTS,
    ),
    Mutant(
        "access/a-session-that-has-ended-is-watched",
        LOOP_CONNECTIONS,
        "            self._unwatch()  # nobody reads, ",
        "            pass  # nobody reads, ",
        ON_LOOP_TESTS,
    ),
    Mutant(
        "access/a-socket-is-watched-when-it-is-closed",
        LOOP_CONNECTIONS,
        "        self._unwatch()  # first, ",
        "        pass  # first, ",
        ON_LOOP_TESTS,
    ),
    Mutant(
        "access/the-loop-asks-for-no-scope",
        ON_LOOP,
        "        self.check_permissions(request)\n",
        "",
        ON_LOOP_TESTS,
    ),
    Mutant(
        "access/the-loop-has-no-rate-limit",
        ON_LOOP,
        "        RateLimit().allow_request(request, self)\n",
        "",
        ON_LOOP_TESTS,
    ),
    Mutant(
        "access/the-loop-reads-outside-the-key-scope",
        ON_LOOP,
        "    keys = typed_keys(reader.spec, lookup.keys, scope)\n",
        "    keys = typed_keys(reader.spec, lookup.keys, KeyScope())\n",
        ON_LOOP_TESTS,
    ),
    Mutant(
        "access/a-token-has-no-limit-of-its-own",
        THROTTLING,
        "if own is not None and not own.is_allowed:",
        "if own is not None and own.limit == 0:",
        TOKEN_TESTS,
    ),
    Mutant(
        "access/a-lookup-of-keys-outside",
        LOOKUPS,
        "    scope.check_keys(spec, typed)\n    return typed",
        "    return typed",
        KEY_SCOPE,
    ),
    Mutant(
        "access/entries-of-keys-outside",
        ENTRIES,
        "prefix = scope.check_prefix(spec, parts_of(self.prefix, spec))",
        "prefix = spec.check_prefix(parts_of(self.prefix, spec)) or scope.prefix_of(spec)",
        KEY_SCOPE,
    ),
    Mutant(
        "access/a-history-of-keys-outside",
        ENTRIES,
        "    scope.check_keys(spec, [typed])\n",
        "",
        KEY_SCOPE,
    ),
    Mutant(
        "access/events-of-keys-outside",
        SUBSCRIPTIONS,
        "prefix = () if keys is not None else scope.check_prefix(spec,",
        "prefix = () if keys is not None else spec.check_prefix(",
        ["tests/webapp/events/test_confinement.py", "tests/webapp/events/test_auth.py"],
    ),
    Mutant(
        "access/a-pipeline-lists-states-outside",
        VISIBLE,
        "states=[state for state in pipeline.states if self.sees(state)],",
        "states=pipeline.states,",
        KEY_SCOPE,
    ),
    Mutant(
        "access/a-run-of-a-state-outside-is-shown",
        VISIBLE,
        "        if not self.sees(found.state_id):\n            raise UnknownRunError",
        "        if not found.state_id:\n            raise UnknownRunError",
        SCOPES,
    ),
    Mutant(
        "access/batches-tell-the-keys-of-states-outside",
        VISIBLE,
        "for state, keys in batch.keys_written.items() if self.sees(state)}",
        "for state, keys in batch.keys_written.items()}",
        KEY_SCOPE,
    ),
    Mutant(
        "access/a-worker-knows-of-its-own-callers-only",
        "webapp/serving/front.py",
        'Contention(multiprocess.memory("callers", Contention.SIZE))',
        "Contention()",
        ["tests/webapp/serving/test_front.py::test_workers_know_of_the_callers_of_each_other"],
    ),
]
