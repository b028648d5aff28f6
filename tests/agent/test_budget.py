"""What a run, and runs together, may use."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgym_core.agent.budget import Budget, TotalBudget
from mlgym_core.errors import UsageError
from mlgym_core.models.base import Usage
from mlgym_core.task.task import Limits


def test_budgets_name_the_limit_that_was_reached() -> None:
    budget = Budget(Limits(cost_usd=1.0, tokens=100, model_calls=4))
    assert budget.exhausted() is None
    budget.charge(Usage(30, 10, 0.4))
    assert budget.exhausted() is None
    budget.charge(Usage(50, 10, None))
    assert (budget.exhausted(), budget.cost_known) == ("tokens", False)
    budget.charge(Usage(0, 0, 0.6))
    assert budget.exhausted() == "cost"
    assert Budget(Limits(cost_usd=None)).exhausted() is None
    calls = Budget(Limits(cost_usd=None, model_calls=1))
    calls.charge(Usage())
    assert calls.exhausted() == "calls"


def test_cached_and_reasoning_tokens_are_told_apart() -> None:
    budget = Budget(Limits())
    budget.charge(Usage(100, 20, 0.0, cached_tokens=80, reasoning_tokens=15))
    budget.charge(Usage(10, 2, 0.0))
    assert (budget.prompt_tokens, budget.completion_tokens) == (110, 22)
    assert (budget.cached_tokens, budget.reasoning_tokens) == (80, 15)


@given(st.lists(st.tuples(st.integers(-5, 50), st.integers(-5, 50), st.none() | st.floats()), max_size=20))
def test_no_usage_lowers_a_budget_and_what_makes_no_sense_is_unknown(
    calls: list[tuple[int, int, float | None]],
) -> None:
    budget, before = Budget(Limits()), (0, 0.0)
    for prompt, completion, cost in calls:
        budget.charge(Usage(prompt, completion, cost))
        assert budget.tokens >= before[0]
        assert budget.cost_usd >= before[1]
        before = budget.tokens, budget.cost_usd
    assert budget.cost_known == all(cost is not None and 0 <= cost < float("inf") for _, _, cost in calls)


def test_a_count_that_no_call_can_have_breaks_no_total() -> None:
    total = TotalBudget(tokens=5)
    Budget(Limits(), total).charge(Usage(10**400, 0, 1.0))
    assert (total.cost_usd, total.exhausted()) == (1.0, "tokens")


def test_runs_share_a_total_and_each_keeps_its_own() -> None:
    total = TotalBudget(cost_usd=2.0)
    first, second = Budget(Limits(cost_usd=1.0), total), Budget(Limits(cost_usd=None), total)
    first.charge(Usage(1, 1, 1.0))
    assert (first.exhausted(), second.exhausted()) == ("cost", None)
    second.charge(Usage(1, 1, 1.0))
    assert (second.exhausted(), total.exhausted(), total.cost_usd) == ("cost", "cost", 2.0)


def test_a_total_counts_every_charge_of_every_thread() -> None:
    total = TotalBudget(model_calls=10**9)
    budgets = [Budget(Limits(cost_usd=None), total) for _ in range(8)]
    threads = [threading.Thread(target=lambda b=b: [b.charge(Usage(1, 1, 0.5)) for _ in range(2000)]) for b in budgets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total.cost_usd == 8 * 2000 * 0.5


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_total_that_makes_no_sense_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="cost_usd"):
        TotalBudget(cost_usd=value)
