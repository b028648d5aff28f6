"""The real litellm client against a service on this machine: requests, replies, prices, settings, side effects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from models.meters import HELLO, KEY, Meter
from models.server import Answer, ModelServer, calls, fails, says, usage

from mlgym_core.errors import UsageError
from mlgym_core.models.base import Message, ModelContext, ModelSettings, Price, ToolCall
from mlgym_core.models.litellm.client import LiteLLMModel, create
from mlgym_core.task.task import Limits
from mlgym_core.task.taskfile import load_task_folder
from mlgym_core.tools.builtin import TOOLS

# Requests and replies


def test_a_request_says_what_the_published_protocol_says(
    server: ModelServer, make: Callable[..., LiteLLMModel]
) -> None:
    server.script(says("Hi."))
    assert make().complete(HELLO, ()).text == "Hi."
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert {name.lower(): value for name, value in request.headers.items()}["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "test-model",
        "temperature": 0,
        "top_p": 0.95,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}],
    }


def test_settings_reach_the_service(server: ModelServer, make: Callable[..., LiteLLMModel]) -> None:
    server.script(says("Hi."))
    settings = {"max_tokens": 9, "seed": 3, "stop": ("END",), "top_p": None, "extra": {"top_k": 4}}
    make(temperature=0.5, **settings).complete(HELLO, ())
    body = dict(server.requests[0].body)
    assert "top_p" not in body
    expected = {"temperature": 0.5, "max_tokens": 9, "seed": 3, "stop": ["END"], "top_k": 4}
    assert {name: body[name] for name in expected} == expected


def test_tools_are_offered_and_several_calls_come_back_in_order(
    server: ModelServer, make: Callable[..., LiteLLMModel]
) -> None:
    server.script(calls(("bash", {"command": "ls"}), ("bash", {"command": "pwd"}), ("submit", ""), text="Now."))
    reply = make().complete(HELLO, TOOLS)
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [
        ("bash", {"command": "ls"}),
        ("bash", {"command": "pwd"}),
        ("submit", {}),
    ]
    assert reply.text == "Now."
    offered = [tool["function"] for tool in server.requests[0].body["tools"]]
    assert [tool["name"] for tool in offered] == [tool.name for tool in TOOLS]
    assert offered[0]["parameters"] == TOOLS[0].parameters


@pytest.mark.parametrize("arguments", ['{"command": "ls', "[1]", '"ls"', '{"timeout": NaN}', '{"timeout": 1e999}'])
def test_arguments_that_are_no_json_object_are_told_apart_and_kept(
    server: ModelServer, make: Callable[..., LiteLLMModel], arguments: str
) -> None:
    server.script(calls(("bash", arguments), ("submit", {})))
    reply = make().complete(HELLO, TOOLS)
    assert [call.arguments for call in reply.tool_calls] == [None, {}]
    assert reply.raw["damaged_arguments"] == {reply.tool_calls[0].id: arguments}
    assert len(server.requests) == 1


def test_calls_without_ids_of_their_own_get_some(server: ModelServer, make: Callable[..., LiteLLMModel]) -> None:
    answer = calls(("bash", {"command": "a"}), ("bash", {"command": "b"}))
    for call in answer.body["choices"][0]["message"]["tool_calls"]:
        call["id"] = "same"
    server.script(answer, answer)
    model = make()
    ids = [call.id for _ in range(2) for call in model.complete(HELLO, TOOLS).tool_calls]
    assert ids == ["same", "call-1-2", "same", "call-2-2"]


def test_the_conversation_is_sent_in_the_services_form(server: ModelServer, make: Callable[..., LiteLLMModel]) -> None:
    server.script(says("Fine."))
    talk = [
        *HELLO,
        Message("assistant", "", (ToolCall("1", "bash", {"command": "é"}), ToolCall("2", "bash", None))),
        Message("tool", "out \ud800", tool_call_id="1"),
        Message("tool", "wrong", tool_call_id="2"),
        Message("assistant", ""),
        Message("user", "Go on."),
    ]
    make().complete(talk, TOOLS)
    assistant, first, second, last = server.requests[0].messages[2:]
    assert [json.loads(call["function"]["arguments"]) for call in assistant["tool_calls"]] == [{"command": "é"}, {}]
    assert (first["role"], first["tool_call_id"], first["content"]) == ("tool", "1", "out ?")
    assert (second["tool_call_id"], last) == ("2", {"role": "user", "content": "Go on."})


def test_the_providers_own_fields_are_kept(server: ModelServer, make: Callable[..., LiteLLMModel]) -> None:
    server.script(says("Hi.", usage(100, 30, cached=60, reasoning=25)))
    reply = make().complete(HELLO, ())
    assert (reply.raw["id"], reply.raw["model"], reply.raw["finish_reason"]) == ("cmpl-7", "served-1", "stop")
    assert reply.raw["usage"]["prompt_tokens"] == 100
    figures = reply.usage
    assert (figures.prompt_tokens, figures.completion_tokens) == (100, 30)
    assert (figures.cached_tokens, figures.reasoning_tokens) == (60, 25)


# Prices


@pytest.mark.parametrize(
    ("model", "price", "cost", "expected"),
    [
        ("openai/test-model", None, None, None),
        ("openai/test-model", None, 0.25, 0.25),
        ("openai/test-model", Price(2.0, 10.0), None, 1e-6 * (2.0 * 1000 + 10.0 * 100)),
        ("openai/test-model", Price(2.0, 10.0), 0.25, 0.25),
        ("openai/gpt-4o", None, None, 1e-6 * (2.5 * 1000 + 10.0 * 100)),
        ("openai/gpt-4o", None, 0.25, 0.25),
        ("openai/gpt-4o", Price(0.0, 0.0), None, 0.0),
    ],
)
def test_the_services_own_figure_comes_first_then_the_given_price_then_the_table(
    server: ModelServer,
    make: Callable[..., LiteLLMModel],
    model: str,
    price: Price | None,
    cost: float | None,
    expected: float | None,
) -> None:
    server.script(says("Hi.", usage(1000, 100, cost=cost)))
    assert make(model, price=price).complete(HELLO, ()).usage.cost_usd == pytest.approx(expected)


def test_a_proxys_own_figure_is_taken(server: ModelServer, make: Callable[..., LiteLLMModel]) -> None:
    server.script(says("Hi.", headers={"x-litellm-response-cost": "0.5"}))
    assert make().complete(HELLO, ()).usage.cost_usd == 0.5


def test_an_unknown_price_is_said_once_and_never_leads_to_another_request(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter, slept: list[float]
) -> None:
    server.script(says("Hi."), says("Hi."))
    model = make()
    assert [model.complete(HELLO, ()).usage.cost_usd for _ in range(2)] == [None, None]
    (notice,) = meter.notices
    assert "price" in notice
    assert "--price" in notice
    assert (len(server.requests), slept) == (2, [])


@pytest.fixture
def context(task_folder: Callable[..., Path]) -> ModelContext:
    return ModelContext(load_task_folder(task_folder()), "full", 0, Limits(cost_usd=1.0))


@pytest.mark.parametrize("model", ["openai/no-such-model", "anthropic/claude-no-such-model"])
def test_a_limit_on_cost_needs_a_price(context: ModelContext, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with pytest.raises(UsageError, match=r"--price.*--cost 0.*--tokens"):
        create(model, context)
    assert create(model, evolve(context, limits=Limits(cost_usd=None))).priced is False
    assert create(model, evolve(context, settings=ModelSettings(price=Price(1.0, 2.0)))).priced
    assert create("openai/gpt-4o", context).priced


@pytest.mark.parametrize(
    ("figures", "tokens", "cost"),
    [
        ({"prompt_tokens": 10**400, "completion_tokens": 7}, (0, 7), None),
        ({"prompt_tokens": 2**53 + 1, "completion_tokens": -1}, (0, 0), None),
        ({**usage(1000, 100), "cost": 10**400}, (1000, 100), 1e-6 * (2.5 * 1000 + 10.0 * 100)),
        ({**usage(1000, 100), "cost": "inf"}, (1000, 100), 1e-6 * (2.5 * 1000 + 10.0 * 100)),
        ({**usage(10, 10, reasoning=-5), "cost": 0.5}, (10, 10), 0.5),
    ],
)
def test_figures_that_make_no_sense_are_none(
    server: ModelServer,
    make: Callable[..., LiteLLMModel],
    figures: dict[str, Any],
    tokens: tuple[int, int],
    cost: float | None,
) -> None:
    server.script(says("Hi.", figures))
    reply = make("openai/gpt-4o").complete(HELLO, ())
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == tokens
    assert reply.usage.cost_usd == pytest.approx(cost)
    assert reply.usage.reasoning_tokens is None
    assert len(server.requests) == 1


def test_reasoning_without_any_choice_is_an_empty_reply(server: ModelServer, make: Callable[..., LiteLLMModel]) -> None:
    server.script(Answer({**says("").body, "choices": [], "usage": usage(10, 30, reasoning=30)}))
    reply = make().complete(HELLO, ())
    assert (reply.text, reply.usage.reasoning_tokens, len(server.requests)) == ("", 30, 1)


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"timeout": 0.0}, "timeout"),
        ({"base_url": "localhost:8000"}, "http://"),
        ({"base_url": "https://me:pw@host/v1"}, "environment"),
        ({"base_url": "https://host/v1?key=1"}, "environment"),
        ({"extra": {"api_key": "x"}}, "environment"),
        ({"extra": {"extra_headers": {"X-Api-Key": "x"}}}, "environment"),
        ({"extra": {"azure_ad_token": "x"}}, "azure_ad_token"),
        ({"extra": {"azureADToken": "x"}}, "azureADToken"),
        ({"extra": {"aws_session_token": "x"}}, "environment"),
        ({"extra": {"extra_headers": {"X-Auth-Token": "x"}}}, "environment"),
        ({"extra": {"extra_headers": {"Ocp-Apim-Subscription-Key": "x"}}}, "Subscription-Key"),
        ({"extra": {"extra_headers": {"Cookie": "x"}}}, "environment"),
        ({"extra": {"extra_headers": ["Authorization: Bearer x1"]}}, "environment"),
        ({"extra": {"fallback": [[{"api_key": "x"}]]}}, "environment"),
        ({"extra": {"odd": {1, 2}}}, "plain JSON"),
        ({"extra": {"stream": True}}, "stream cannot be an extra argument"),
    ],
)
def test_settings_that_make_no_sense_or_would_record_a_key_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LiteLLMModel("openai/test-model", ModelSettings(**settings))


def test_names_that_only_look_like_keys_are_taken() -> None:
    extra = {"max_completion_tokens": 5, "prompt_cache_key": "x", "stop_token_ids": [1], "top_logprobs": 2, "a": ["b"]}
    assert ModelSettings(extra=extra).extra == extra


def test_prices_are_finite_and_not_negative() -> None:
    for prices in ((-1.0, 1.0), (1.0, float("nan")), (float("inf"), 1.0)):
        with pytest.raises(UsageError, match="price"):
            Price(*prices)


def test_settings_a_model_does_not_take_are_left_out_with_a_notice(
    server: ModelServer, make: Callable[..., LiteLLMModel], meter: Meter
) -> None:
    server.script(says("Hi."))
    make("openai/o3").complete(HELLO, ())
    assert "top_p" not in server.requests[0].body
    assert any("top_p" in notice for notice in meter.notices)


def test_a_model_without_a_provider_is_refused(context: ModelContext) -> None:
    with pytest.raises(UsageError, match="litellm:openai/some-model"):
        create("some-model", context)
    with pytest.raises(UsageError, match="needs a model"):
        create("", context)


def test_keys_come_from_dotenv_without_overriding(
    context: ModelContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "")
    monkeypatch.delenv("GROQ_API_KEY")
    monkeypatch.setenv("XAI_API_KEY", "")
    (tmp_path / ".env").write_text("OPENAI_API_KEY=from-the-file\nGROQ_API_KEY='gsk-from-$file'\nXAI_API_KEY=x-key\n")
    create("openai/gpt-4o", context)
    assert os.environ["OPENAI_API_KEY"] == KEY
    assert os.environ["GROQ_API_KEY"] == "gsk-from-$file"
    assert os.environ["XAI_API_KEY"] == "x-key", "an empty variable is none"


# What importing and calling it leaves behind

_CHILD = """
import logging, os, signal, socket, sys
handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
reached = []
real = socket.socket.connect
def connect(self, address):
    reached.append(address)
    return real(self, address)
socket.socket.connect = connect
from mlgym_core.models.base import Message, ModelSettings
from mlgym_core.models.litellm.client import LiteLLMModel
assert "litellm" not in sys.modules
model = LiteLLMModel("openai/test-model", ModelSettings(base_url=sys.argv[1]))
assert reached == [], reached
assert model.complete([Message("user", "Hello.")], ()).text == "Hi."
assert {address[0] for address in reached} == {"127.0.0.1"}, reached
assert handlers == {n: signal.getsignal(n) for n in handlers}
assert logging.getLogger().handlers == []
assert "SOME_OTHER_KEY" not in os.environ
"""


def _child(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=100, check=False, **options
    )


def test_it_prints_nothing_and_reaches_nobody_but_the_service(server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SOME_OTHER_KEY=read-by-nobody\n")
    server.script(fails(500, "boom", headers={"retry-after": "0"}), says("Hi."))
    done = _child(_CHILD, server.url, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_missing_litellm_is_a_usage_error_that_says_what_to_install() -> None:
    done = _child(
        "import sys\nsys.modules['litellm'] = None\n"
        "from mlgym_core.errors import UsageError\nfrom mlgym_core.models.base import ModelSettings\n"
        "from mlgym_core.models.litellm.client import LiteLLMModel\n"
        "try:\n    LiteLLMModel('openai/x', ModelSettings())\n"
        "except UsageError as error:\n    print(error)\n"
    )
    assert "pip install 'mlgym-core[litellm]'" in done.stdout, done.stderr


def test_the_other_models_do_not_import_it() -> None:
    done = _child(
        "import sys\nfrom mlgym_core import RunConfig, run\n"
        "run(RunConfig('battle-of-sexes', size='tiny', backend='local'))\nassert 'litellm' not in sys.modules\n"
    )
    assert done.returncode == 0, done.stderr
