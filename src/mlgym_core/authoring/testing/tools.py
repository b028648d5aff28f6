"""The promises of a tool as tests. Needs pytest."""

# ruff: noqa: D102 - the names of the tests say what they promise

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import define, field

from mlgym_core.sandbox.base import ActionResult, ActionStatus, Captured
from mlgym_core.tools.base import Tool, ToolArgumentError, ToolOutput

_TYPES = {"string", "integer", "number", "boolean", "array", "object"}
_WRONG: Mapping[str, Any] = {"string": 1, "integer": "x", "number": "x", "boolean": "x", "array": "x", "object": "x"}


@define
class StubContext:
    """A stand-in for an episode: commands print nothing, files are kept in memory.

    Attributes:
        commands: that were run.
        scripts: that were run, with their arguments.
        files: path -> content.
        calls: ``validate`` and ``submit`` in order.
    """

    workdir: str = "/workspace"
    commands: list[str] = field(factory=list)
    scripts: list[tuple[str, Mapping[str, Any]]] = field(factory=list)
    files: dict[str, bytes] = field(factory=dict)
    calls: list[str] = field(factory=list)

    def run_command(self, command: str, timeout: float | None = None) -> ActionResult:
        """Note a command."""
        del timeout
        self.commands.append(command)
        return ActionResult(ActionStatus.COMPLETED, 0, Captured(), Captured(), 0.0)

    def run_script(self, name: str, arguments: Mapping[str, Any]) -> ActionResult:
        """Note a script."""
        self.scripts.append((name, dict(arguments)))
        return ActionResult(ActionStatus.COMPLETED, 0, Captured(), Captured(), 0.0)

    def read_file(self, path: str, limit: int) -> bytes:
        """A file that was written before."""
        if path not in self.files:
            raise FileNotFoundError(f"{path}: no such file")
        if len(self.files[path]) > limit:
            raise OSError(f"{path}: larger than {limit} bytes")
        return self.files[path]

    def write_file(self, path: str, data: bytes) -> None:
        """Keep a file."""
        self.files[path] = data

    def validate(self) -> ToolOutput:
        """Note the call."""
        self.calls.append("validate")
        return ToolOutput("validated")

    def submit(self) -> ToolOutput:
        """Note the call."""
        self.calls.append("submit")
        return ToolOutput("submitted")


class ToolContract:
    """The promises of a tool; a subclass provides the fixture ``tool``, and ``arguments`` if it takes any."""

    @pytest.fixture
    def tool(self) -> Tool:
        """The tool under test."""
        raise NotImplementedError("provide a fixture named tool")

    @pytest.fixture
    def arguments(self) -> Mapping[str, Any]:
        """Arguments that are right."""
        return {}

    @pytest.fixture
    def context(self) -> Any:
        """What the tool acts on."""
        return StubContext()

    def test_name_and_description_are_fit_for_models(self, tool: Tool) -> None:
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", tool.name), f"{tool.name!r} is no name for a function"
        assert len(tool.description.strip()) >= 20, "say in the description what the tool does and when to use it"

    def test_schema_is_valid(self, tool: Tool) -> None:
        schema = tool.parameters
        json.dumps(schema, allow_nan=False)
        assert schema.get("type") == "object", "the schema of the arguments must have type: object"
        properties = schema.get("properties", {})
        assert set(schema.get("required", ())) <= set(properties), "required names an argument that is no property"
        for name, one in properties.items():
            assert one.get("type") in _TYPES, f"argument {name}: type must be one of {sorted(_TYPES)}"

    def test_right_arguments_are_answered_with_text(
        self, tool: Tool, arguments: Mapping[str, Any], context: Any
    ) -> None:
        tool.check(arguments)
        output = tool.run(context, arguments)
        assert isinstance(output, ToolOutput)
        assert isinstance(output.text, str)
        assert output.text.strip(), "an agent needs an answer; say at least that it is done"
        json.dumps(dict(output.info), default=str)

    def test_wrong_arguments_are_refused_before_it_runs(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        with pytest.raises(ToolArgumentError, match="unknown argument"):
            tool.check({**arguments, "no_such_argument": 1})
        for name in tool.parameters.get("required", ()):
            with pytest.raises(ToolArgumentError, match=f"{name!r} is missing"):
                tool.check({key: value for key, value in arguments.items() if key != name})
        for name, one in tool.parameters.get("properties", {}).items():
            with pytest.raises(ToolArgumentError, match=name):
                tool.check({**arguments, name: _WRONG[one["type"]]})
