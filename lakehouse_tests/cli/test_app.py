"""Exit codes, errors, help, settings."""

import json

import pytest

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.cli.app import commands, exit_code_of
from lakehouse_tests.support.terminal import Terminal, subcommands

EVERY = sorted(subcommands(commands))


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (Refused("why not"), "Refused", 2),
        (Transient("later"), "Transient", 75),
        (Broken("look"), "Broken", 1),
        (ZeroDivisionError("oops"), "Broken", 1),
    ],
)
def test_each_error_has_its_exit_code_and_its_json(
    error: Exception, kind: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    assert (exit_code_of(fail, as_json=False), capsys.readouterr().out) == (code, "")
    assert exit_code_of(fail, as_json=True) == code
    out, err = capsys.readouterr()
    told = json.loads(out)["error"]
    assert (told["kind"], told["exit_code"]) == (kind, code)
    assert (f"{kind}: {told['message']}" in err) is True


def test_a_group_without_a_command_prints_its_help_alone(terminal: Terminal) -> None:
    for words in ((), ("quarantine",)):
        shown = terminal.run(*words)
        assert (shown.exit_code, shown.stdout) == (2, "")
        assert (
            shown.stderr.startswith("Usage: lakehouse")
            and "see: " not in shown.stderr.splitlines()[-1]
        )


def test_an_interrupt_exits_with_130(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lakehouse.materialize.command.open_declared", interrupt)
    assert terminal.json("tables", exit_code=130)["error"]["kind"] == "Interrupted"


@pytest.mark.parametrize(
    "arguments",
    [("bogus",), ("plan", "--bogus"), ("compact",), ("history", "bronze/orders", "--limit", "0")],
)
def test_misuse_is_refused_on_one_line(terminal: Terminal, arguments: tuple[str, ...]) -> None:
    result = terminal.refused(*arguments)
    assert result.startswith("Refused: ") and result.count("\n") == 1 and " -h" in result
    assert terminal.json(*arguments, exit_code=2)["error"]["exit_code"] == 2


@pytest.mark.parametrize("name", EVERY)
def test_every_command_explains_itself_with_an_example(terminal: Terminal, name: str) -> None:
    for flag in ("-h", "--help"):
        result = terminal.run(name, flag)
        assert result.exit_code == 0
        assert "Example" in result.stdout
    assert name in terminal.run("-h").stdout


def test_a_setting_that_is_not_accepted_stops_every_command_that_reads_settings(
    terminal: Terminal,
) -> None:
    for line in ("tables", "health", "doctor --settings", "server", "up", "replay", "materialize"):
        refused = terminal.refused(*line.split(), LAKEHOUSE_PORT="many")
        assert "Refused: LAKEHOUSE_PORT is 'many'" in refused
    refused = terminal.run("tables", LAKEHOUSE_TABLES="no.such.package").stderr
    assert refused.startswith(
        "Refused: LAKEHOUSE_TABLES is no.such.package, but Python finds no package no. Either run the "
    )


def test_the_doctor_tells_where_each_value_comes_from_and_no_secret(terminal: Terminal) -> None:
    secrets = dict.fromkeys(
        ("AWS_SECRET_ACCESS_KEY", "AWS_SOMETHING_NEW", "SPARK_CONNECT_AUTHENTICATE_TOKEN"), "hush"
    )
    addresses = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "LAKEHOUSE_SPARK": "sc://cluster:15002/;user_id=x;x-api-key=hush;use_ssl=true",
    }
    for arguments in (["doctor", "--settings"], ["doctor", "--settings", "--json"]):
        result = terminal.run(*arguments, **secrets, **addresses)
        assert result.exit_code == 0
        assert "hush" not in result.stdout + result.stderr
    document = terminal.json("doctor", "--settings", **secrets, **addresses)
    by_name = {each["name"]: each for each in document}
    expected = "sc://cluster:15002/;user_id=x;x-api-key=***;use_ssl=true"
    assert by_name["LAKEHOUSE_SPARK"]["value"] == expected
    assert by_name["LAKEHOUSE_HOME"]["source"] == "environment"
    accepted = "a TCP port, 1 to 65535, for Dagster's UI"
    port = {"name": "LAKEHOUSE_PORT", "value": "3000", "default": "3000", "accepted": accepted}
    assert by_name["LAKEHOUSE_PORT"] == {**port, "source": "default"}


def test_a_server_that_never_started_may_be_stopped_again_and_again(terminal: Terminal) -> None:
    unknown = dict.fromkeys(("pid", "keeper_pid"))
    status = {"condition": "stopped", "port": 1, "log": f"{terminal.home}/server/server.log"}
    for action in ([], ["stop"]):
        assert terminal.json("server", *action) == {**status, **unknown}
    assert "lakehouse server start" in terminal.run("server").stdout
    # Nobody would use it.
    assert "LAKEHOUSE_SPARK" in terminal.refused("server", "start", LAKEHOUSE_SPARK="local[1]")
