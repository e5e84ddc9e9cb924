"""Facts about what the fake driver takes a command for."""

import math

import pytest

from hawker.runtime.fake_program import Script, read_command


@pytest.mark.parametrize(
    "argv, expected",
    [
        (("true",), Script()),
        (("/bin/false",), Script(code=1)),
        (("exit", "7"), Script(code=7)),
        (("sleep", "2"), Script(runs_s=2.0)),
        (("sleep", "infinity"), Script(runs_s=math.inf)),
        (("/usr/sbin/nginx", "-g", "daemon off;"), Script(runs_s=math.inf)),
        (("echo", "a", "b"), Script(output=((1, b"a b\n"),))),
        (("printf", r"a\n"), Script(output=((1, b"a\n"),))),
        (("cat",), Script(runs_s=math.inf, echoes=True)),
        (("env",), Script(output=((1, b"NAME=world\n"),))),
        (("/nope", "x"), Script(code=127, missing="exec /nope: no such file or directory")),
    ],
)
def test_simple_commands(argv: tuple[str, ...], expected: Script) -> None:
    assert read_command(argv, {"NAME": "world"}) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("echo hi; exit 3", Script(output=((1, b"hi\n"),), code=3)),
        ("echo hello $NAME ${NAME}", Script(output=((1, b"hello world world\n"),))),
        ("echo out; echo err >&2", Script(output=((1, b"out\n"), (2, b"err\n")))),
        ("sleep 1; sleep 2 && exit 4", Script(runs_s=3.0, code=4)),
        ("false && echo no", Script(code=1)),
        ("exit 2; echo no", Script(code=2)),
        ("echo up; exec sleep infinity; echo no", Script(output=((1, b"up\n"),), runs_s=math.inf)),
        ("exec cat", Script(runs_s=math.inf, echoes=True)),
    ],
)
def test_shell_lines(text: str, expected: Script) -> None:
    assert read_command(("/bin/sh", "-c", text), {"NAME": "world"}) == expected
